"""Mean and spread of a committee, on arrays with the members first."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gnnforce.errors import StatisticsError


def committee_mean(members: ArrayLike) -> NDArray[np.float64]:
    """Return the mean over members.

    Args:
        members: Shape ``(n_members, ...)``.

    Returns:
        Shape ``(...)``.

    Raises:
        StatisticsError: For no members or values that are not finite.

    Example:
        >>> committee_mean([[1.0, 2.0], [3.0, 6.0]]).tolist()
        [2.0, 4.0]
    """
    values: NDArray[np.float64] = _checked(members, at_least=1).mean(axis=0)
    return values


def committee_std(members: ArrayLike) -> NDArray[np.float64]:
    r"""Return the standard deviation over members, per component.

    .. math:: \sigma = \sqrt{\tfrac{1}{M-1} \sum_m (x_m - \bar x)^2}

    Args:
        members: Shape ``(n_members, ...)``, in any unit.

    Returns:
        Shape ``(...)``, same unit.

    Raises:
        StatisticsError: For fewer than two members or values that are not finite.

    Example:
        >>> committee_std([[1.0, 2.0], [3.0, 2.0]]).round(4).tolist()
        [1.4142, 0.0]
    """
    values: NDArray[np.float64] = _checked(members, at_least=2).std(axis=0, ddof=1)
    return values


def atom_uncertainty(forces_std: ArrayLike) -> NDArray[np.float64]:
    r"""Return one force uncertainty an atom: the root mean square of its components.

    .. math:: u_i = \sqrt{\tfrac13 \sum_{\alpha} \sigma_{i\alpha}^2}

    Args:
        forces_std: In eV/Angstrom, shape ``(..., n_atoms, 3)``.

    Returns:
        In eV/Angstrom, shape ``(..., n_atoms)``.

    Raises:
        StatisticsError: When the last axis is not of length three.

    Example:
        >>> atom_uncertainty([[1.0, 1.0, 1.0], [0.0, 3.0, 0.0]]).round(4).tolist()
        [1.0, 1.7321]
    """
    values = np.asarray(forces_std, dtype=np.float64)
    if values.ndim < 1 or values.shape[-1] != 3:
        raise StatisticsError(f"forces_std must end in an axis of 3, not {values.shape}")
    rms: NDArray[np.float64] = np.sqrt((values**2).mean(axis=-1))
    return rms


def _checked(members: ArrayLike, at_least: int) -> NDArray[np.float64]:
    values = np.asarray(members, dtype=np.float64)
    if values.ndim == 0 or values.shape[0] < at_least:
        number = 0 if values.ndim == 0 else values.shape[0]
        raise StatisticsError(
            f"this needs at least {at_least} committee members, there are {number}"
        )
    if not np.isfinite(values).all():
        raise StatisticsError("values of committee members are not all finite")
    return values
