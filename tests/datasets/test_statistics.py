import warnings

import numpy as np
import pytest

from gnnforce.datasets.labels import LabelSpec, extract_labels
from gnnforce.datasets.statistics import force_rms, largest_force
from gnnforce.errors import DataError


def table_of(frames, **options):
    return extract_labels(frames, [LabelSpec("a")], require=(), **options)


def test_root_mean_square_of_components(h2):
    frames = [h2(force=3.0), h2(0.9, force=0.0), h2(1.1)]
    assert force_rms(table_of(frames), "a") == pytest.approx(np.sqrt(2 * 9 / 12))


def test_masked_atoms_do_not_count(h2):
    atoms = h2(force=3.0)
    atoms.arrays["forces"][0] = np.nan
    assert force_rms(table_of([atoms], allow_nan=["forces"]), "a") == pytest.approx(
        np.sqrt(3)
    )


@pytest.mark.parametrize(
    ("force", "reason"), [(None, "no forces"), (0.0, "all forces are zero")]
)
def test_no_scale_is_one_with_one_warning(h2, force, reason):  # C34
    table = table_of([h2(energy=1.0, force=force)] * 4)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert force_rms(table, "a") == 1.0
    assert [reason in str(w.message) for w in caught] == [True]


def test_largest_force_and_its_frame(h2):  # C42
    table = table_of([h2(force=0.5), h2(0.9, force=-2.0), h2(1.1, force=1.0)])
    assert largest_force(table) == (2.0, 1)
    assert largest_force(table_of([h2(energy=1.0)])) is None


def test_unknown_head(h2):
    with pytest.raises(DataError, match="no labels of head 'b'; there are a"):
        force_rms(table_of([h2(force=1.0)]), "b")
