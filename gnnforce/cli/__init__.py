"""The command ``gnnforce``: parse, call, print."""
