import numpy as np
import pytest
import torch
from ase.calculators.calculator import CalculationFailed

from gnnforce.calculators.results import COMMITTEE_PROPERTIES, ase_results, voigt
from gnnforce.models.predictions import HeadPredictions

RNG = np.random.default_rng(0)


def predictions(members):
    forces = torch.from_numpy(RNG.normal(size=(members, 4, 3)))
    stress = torch.from_numpy(RNG.normal(size=(members, 1, 3, 3)))
    return HeadPredictions(
        "e",
        {
            "energy": torch.from_numpy(RNG.normal(size=(members, 1))),
            "energies": torch.from_numpy(RNG.normal(size=(members, 4))),
            "forces": forces,
            "stress": stress + stress.transpose(-1, -2),
        },
    )


def test_voigt_order():
    matrix = np.array([[1.0, 6, 5], [6, 2, 4], [5, 4, 3]])
    many = voigt(np.stack([matrix, -matrix]))
    assert many.tolist() == [[1, 2, 3, 4, 5, 6], [-1, -2, -3, -4, -5, -6]]


def test_committee_of_two_in_closed_form():
    head = predictions(2)
    results = ase_results(head, ["energy", "energies", "forces", "stress"], 2)
    first, second = head.members("forces").numpy()
    np.testing.assert_allclose(results["forces"], (first + second) / 2)
    np.testing.assert_allclose(results["forces_std"], abs(first - second) / np.sqrt(2))
    assert results["forces_members"].shape == (2, 4, 3)
    assert results["stress_members"].shape == (2, 6)
    assert results["free_energy"] == results["energy"]
    assert set(COMMITTEE_PROPERTIES) < set(results)


def test_one_member_has_only_plain_keys():
    results = ase_results(predictions(1), ["energy", "forces"], 1)
    assert set(results) == {"energy", "free_energy", "forces"}
    assert type(results["energy"]) is float


def test_results_are_their_own_memory():
    head = predictions(3)
    results = ase_results(head, ["energy", "forces"], 3)
    before = head.members("forces").clone()
    results["forces_members"][:] = 0
    results["forces"][:] = 0
    assert torch.equal(head.members("forces"), before)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_not_finite_is_refused(bad):
    head = predictions(2)
    head.members("forces")[1, 2, 0] = bad
    with pytest.raises(CalculationFailed, match="forces"):
        ase_results(head, ["energy", "forces"], 2)
