import numpy as np
import pytest
import torch

from gnnforce.backbones.schnet import SchNet
from gnnforce.models.force_field import ForceField
from gnnforce.readouts.head import Head
from gnnforce.testing import systems
from gnnforce.testing.measure import (
    assert_close,
    assert_same_energy,
    evaluate,
    random_rotation,
    strained,
    transformed,
)


@pytest.fixture
def model():
    return ForceField(SchNet([1, 8], n_features=4), [Head("a", members=2)]).double()


def test_close():
    assert_close([1.0], [1.0 + 1e-9], 1e-8, "x")
    assert_close([1e6], [1e6 + 1e-3], 1e-8, "x")
    assert_close(np.zeros((0, 3)), np.zeros((0, 3)), 0.0, "x")
    for bad in ([1.1], [np.nan], [np.inf]):
        with pytest.raises(AssertionError, match="x differ"):
            assert_close(bad, [1.0], 1e-8, "x")
    with pytest.raises(AssertionError, match="shape"):
        assert_close([1.0, 2.0], [1.0], 1e-8, "x")


def test_large_energies_do_not_hide_differences(model):
    assert_same_energy(model, [-1e5], [-1e5], "energies")
    with pytest.raises(AssertionError, match="energies differ"):
        assert_same_energy(model, [-1e5], [-1e5 + 1e-6], "energies")
    with pytest.raises(AssertionError, match="shape"):
        assert_same_energy(model, [1.0, 1.0], [1.0], "energies")


def test_evaluate_shapes(model):
    atoms = systems.water()
    atoms.set_cell([5, 5, 5])
    atoms.pbc = True
    out = evaluate(model, atoms, "energy", "forces", "stress", "virial")
    assert {name: value.shape for name, value in out.items()} == {
        "energy": (2,),
        "forces": (2, 3, 3),
        "stress": (2, 3, 3),
        "virial": (2, 3, 3),
    }
    assert set(evaluate(model, atoms)) == {"energy", "forces"}
    assert all(value.dtype == np.float64 for value in out.values())


def test_rotations():
    for reflect in (False, True):
        matrix = random_rotation(3, reflect)
        np.testing.assert_allclose(matrix @ matrix.T, np.eye(3), atol=1e-12)
        assert np.linalg.det(matrix) == pytest.approx(-1 if reflect else 1)


def test_deformations_do_not_touch_the_original():
    atoms = systems.skewed_pair()
    before = atoms.copy()
    strain = np.diag([0.1, 0, 0])
    assert strained(atoms, strain).get_volume() == pytest.approx(1.1 * atoms.get_volume())
    turned = transformed(atoms, random_rotation(1))
    assert turned.get_distance(0, 1) == pytest.approx(atoms.get_distance(0, 1))
    assert turned.get_volume() == pytest.approx(atoms.get_volume())
    assert atoms == before


def test_default_dtype_untouched(model):
    evaluate(model, systems.water())
    assert torch.get_default_dtype() == torch.float32
