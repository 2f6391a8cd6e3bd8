import pytest
import torch

from gnnforce.backbones.painn import PaiNN
from gnnforce.backbones.schnet import SchNet
from gnnforce.derivatives.constants import cache_file, constants_for
from gnnforce.derivatives.cost import DEFAULTS, Rate, Workload
from gnnforce.graph.views import edge_vectors
from gnnforce.models import calibration
from gnnforce.models.calibration import Sample, calibrate, fitted, molecules


@pytest.fixture
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("GNNFORCE_CACHE", str(tmp_path))
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_auto_uses_what_was_measured(monkeypatch):
    """With made-up times: ``batched`` free, everything else a second a row."""
    monkeypatch.setattr(calibration, "SETUPS", ((3, 1, 2), (4, 2, 2), (4, 2, 5)))

    def timed(model, _graph, rounds):
        assert rounds == 7
        size = float(model.n_outputs)
        return {"energy": 0.5, "batched": 0.5, "loop": size} | dict.fromkeys(
            ("chain", "forward"), 30.0
        )

    monkeypatch.setattr(calibration, "timed", timed)
    found = calibrate(rounds=7)
    assert cache_file().is_file()
    cpu = torch.device("cpu")
    assert list(found) == ["PaiNN", "SchNet"]
    for name, constants in found.items():
        assert constants_for(cpu, name) == constants
    model = calibration.made(PaiNN, 20, cpu)
    out = model.predict(molecules(3, 1))
    assert out.strategy == "batched"
    assert out.choice.reason.startswith("least estimated time of loop ")
    cache_file().unlink()
    assert constants_for(cpu, "PaiNN") is DEFAULTS["PaiNN"]


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_real_measurements_are_finite_and_ordered():
    found = calibrate(rounds=1)
    one = Workload(1, 15, 200, 64, 3, 1, 45)
    for name, constants in found.items():
        for strategy, rate in constants.rates.items():
            assert 0 < rate.seconds(one, 1, 1) < 10, (name, strategy)
        assert 0 < constants.product < 1e-6


@pytest.mark.parametrize(
    "rate",
    [Rate(1e-3, 1e-9, 1e-4, 2e-9), Rate(0.0, 1e-8, 2e-4, 0.0), Rate(1e-3, 0, 0, 0)],
)
def test_the_fit_finds_the_numbers_that_made_the_times(rate):
    samples = []
    for n_atoms, n_edges in ((5, 20), (15, 200), (200, 3000)):
        for passes in (1, 4, 16):
            work = Workload(passes, n_atoms, n_edges, 64, 3, 1, 9)
            samples.append(Sample(work, passes, rate.seconds(work, passes, 1)))
    found = fitted(samples, loop=False)
    for name in ("start", "start_size", "row", "row_size"):
        assert getattr(found, name) == pytest.approx(getattr(rate, name), rel=1e-6)
    noisy = [
        s._replace(seconds=s.seconds * f)
        for s, f in zip(samples, [0.7, 1.4, 1] * 3, strict=True)
    ]
    found = fitted(noisy, loop=True)
    assert found.start == found.start_size == 0
    assert min(found.row, found.row_size) >= 0


def test_clusters_are_complete_graphs():
    graph = molecules(4, 3)
    assert (graph.n_atoms, graph.n_edges, graph.n_graphs) == (12, 36, 3)
    source, target = graph.edge_index
    assert (target.diff() >= 0).all()  # sorted by target
    assert not (source == target).any()
    assert (graph.graph_index[source] == graph.graph_index[target]).all()
    pairs = set(zip(source.tolist(), target.tolist(), strict=True))
    assert len(pairs) == 36
    assert edge_vectors(graph).norm(dim=1).min() > 0.05


def test_the_global_random_state_stays():
    before = torch.get_rng_state()
    calibration.made(SchNet, 2, torch.device("cpu"))
    molecules(4, 1)
    assert torch.equal(torch.get_rng_state(), before)
