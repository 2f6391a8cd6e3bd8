"""How far predictions can be trusted: committee statistics and calibration."""
