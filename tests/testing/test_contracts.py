"""Every contract catches a model that breaks its law."""

import pytest
import torch

from gnnforce.errors import UserError
from gnnforce.testing.checks import failures
from gnnforce.testing.contracts import CONTRACTS, check_model


def test_sound_model_passes(faulty):
    checks = check_model(faulty("none"))
    assert not failures(checks)
    assert [check.name for check in checks] == list(CONTRACTS)


@pytest.mark.parametrize(
    ("fault", "laws"),
    [
        ("cosine", {"smooth cutoff"}),
        ("no envelope", {"smooth cutoff"}),
        ("direction", {"rotation", "reflection"}),
        ("handed", {"reflection"}),
        ("detached", {"forces are gradients", "stress is a gradient"}),
        ("few neighbors", {"permutation"}),
        ("batch mean", {"batch equals singles", "batch members are independent"}),
        ("absolute position", {"translation", "wrapping", "forces are gradients"}),
        ("atom number", {"permutation", "supercell"}),
        ("periodic images", {"wrapping", "supercell"}),
        ("remembers", {"no trace"}),
        ("lone atom", {"isolated atoms"}),
    ],
)
def test_faults_are_caught(faulty, fault, laws):
    checks = check_model(faulty(fault))
    found = {check.name for check in checks if not check.passed}
    assert laws <= found
    if fault == "handed":
        assert "rotation" not in found


def test_one_contract_by_name(faulty):
    assert [c.name for c in check_model(faulty("none"), ["supercell"])] == ["supercell"]
    with pytest.raises(UserError, match="'supercell'"):
        check_model(faulty("none"), ["supercel"])


def test_model_is_not_changed(faulty):
    model = faulty("none")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    check_model(model)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    assert all(parameter.grad is None for parameter in model.parameters())
