import pytest
import torch

from gnnforce.errors import StatisticsError, UnknownHeadError, UserError
from gnnforce.models.predictions import Predictions
from gnnforce.readouts.head import Head, OutputTable

TABLE = OutputTable((Head("one"), Head("many", members=3)))
FORCES = torch.arange(4 * 2 * 3, dtype=torch.float64).reshape(4, 2, 3) ** 2
ENERGY = torch.tensor([[1.0], [2.0], [4.0], [9.0]], dtype=torch.float64)


def made(**options):
    return Predictions({"energy": ENERGY, "forces": FORCES}, TABLE, "loop", **options)


def test_it_is_a_mapping():
    out = made()
    assert list(out) == ["energy", "forces"]
    assert len(out) == 2
    assert "stress" not in out
    assert out.get("stress") is None
    assert out.get("energy") is ENERGY
    assert out["forces"] is FORCES
    assert dict(out)["energy"] is ENERGY
    assert out.strategy == "loop"
    assert out.outputs is TABLE


def test_outputs_last():
    out = made(outputs_last=True)
    assert out["forces"].shape == (2, 3, 4)
    assert torch.equal(out["forces"][..., 2], FORCES[2])
    assert out["energy"].shape == (1, 4)
    assert out.head("many").members("forces").shape == (3, 2, 3)


def test_statistics_by_hand():
    many = made().head("many")
    assert many.mean("energy").tolist() == [5.0]
    # deviations -3, -1, 4: 26 over two
    assert many.std("energy").item() == pytest.approx(13**0.5)
    rows = FORCES[1:].numpy()
    torch.testing.assert_close(many.std("forces").numpy(), rows.std(axis=0, ddof=1))
    torch.testing.assert_close(many.mean("forces").numpy(), rows.mean(axis=0))
    assert torch.equal(many.members("forces"), FORCES[1:])


def test_one_member_has_no_deviation():
    one = made().head("one")
    assert one.mean("energy").tolist() == [1.0]
    with pytest.raises(StatisticsError, match=r"'one' has one member .* members >= 2"):
        one.std("energy")


def test_what_was_not_asked_for():
    out = made()
    for ask in (lambda: out["stress"], lambda: out.head("one").mean("stress")):
        with pytest.raises(UserError, match=r"'stress' was not asked for .*'stress'\]\)"):
            ask()
    with pytest.raises(UnknownHeadError, match="no head 'few'; the model has one, many"):
        out.head("few")


def test_combinations_belong_to_no_head():
    """Row 1 of the forces is not member 0 of the second head."""
    out = made(combined=True)
    assert out["forces"] is FORCES
    assert torch.equal(out.head("many").members("energy"), ENERGY[1:])
    with pytest.raises(UserError, match="of each output"):
        out.head("many").members("forces")
