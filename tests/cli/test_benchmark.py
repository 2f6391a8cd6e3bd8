"""``gnnforce benchmark``: options, files, exit status. No time is asserted."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from ase.build import molecule
from ase.io import write

from gnnforce.cli.benchmark import common_setup, numbers_of, setups_of
from gnnforce.errors import UserError
from gnnforce.models.force_field import ForceField
from gnnforce.testing.benchmark_setup import strategy_names

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["--features", 8, "--layers", 1, "--repeats", 1, "--no-memory"]
QUICK = ["benchmark", "forces", "--workload", "molecule", "--members", "4", *SMALL]


@pytest.fixture(scope="module")
def every_strategy(tmp_path_factory):
    """The JSON file of one run with all strategies, made by the script in a clone."""
    path = tmp_path_factory.mktemp("benchmark") / "forces.json"
    words = [
        sys.executable,
        "-W",
        "ignore",
        str(ROOT / "scripts" / "benchmark_forces.py"),
    ]
    words += [str(word) for word in QUICK[2:]]
    words += ["--threads", "1", "--json", str(path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "R(N)" in done.stdout
    return json.loads(path.read_text(encoding="utf-8"))


def test_the_file_says_what_was_measured_where_and_how(every_strategy):
    assert every_strategy["kind"] == "energies and forces"
    assert every_strategy["agrees"] is True
    machine = every_strategy["machine"]
    assert machine["threads"] == 1
    assert machine["versions"]["torch"] == torch.__version__
    assert {"processor", "cpus", "device", "system", "time_utc"} <= set(machine)
    assert every_strategy["settings"]["members"] == [1, 4]
    (workload,) = every_strategy["workloads"]
    assert workload["setup"]["backbone"] == "PaiNN"
    assert workload["setup"]["sizes"] == {"n_features": 8, "n_layers": 1, "cutoff": 5.0}
    assert workload["sizes"]["n_atoms"] == 15
    assert workload["dtype"] == "float32"


def test_every_candidate_has_a_row(every_strategy):
    rows = every_strategy["workloads"][0]["rows"]
    assert [(row["n_outputs"], row["strategy"]) for row in rows] == [
        (n, name) for n in (1, 4) for name in strategy_names()
    ]
    for row in rows:
        if row["status"] != "measured":
            assert row["reason"]
            continue
        assert row["lower_quartile_ms"] <= row["median_ms"] <= row["upper_quartile_ms"]
        assert row["agrees"] is True
        agreement = row["agreement"]
        assert agreement["forces_relative_from_loop"] < 1e-5
        assert 0 < agreement["forces_relative_from_float64_loop"] < 1e-4
        assert agreement["compared_outputs"] == row["n_outputs"]
    by_key = {(row["n_outputs"], row["strategy"]): row for row in rows}
    best = min(
        row["median_ms"] for (n, _), row in by_key.items() if n == 1 and row["median_ms"]
    )
    four, loop = by_key[4, "batched"], by_key[4, "loop"]
    assert four["ratio_to_one"] == pytest.approx(four["median_ms"] / best)
    assert four["gain_over_loop"] == pytest.approx(loop["median_ms"] / four["median_ms"])


def test_the_table_and_the_plot(run, tmp_path):
    words = ["--strategy", "batched", "--plot", tmp_path / "times.png"]
    result = run(*QUICK, *words)
    assert result.status == 0
    assert result.err == ""
    assert "molecule: 15 atoms, 186 edges" in result.out
    lines = [line.split() for line in result.out.splitlines()]
    assert [line[:2] for line in lines if line[1:2] == ["batched"]] == [
        ["1", "batched"],
        ["4", "batched"],
    ]
    assert (tmp_path / "times.png").read_bytes().startswith(b"\x89PNG")


def test_json_on_standard_output_is_alone(run):
    report = run(*QUICK, "--strategy", "loop", "--json", "-").json()
    assert [row["strategy"] for row in report["workloads"][0]["rows"]] == ["loop"] * 2


def test_a_training_step(run):
    words = [*QUICK, "--strategy", "batched", "--training", "--json", "-"]
    report = run(*words).json()
    assert report["kind"] == "training step"
    for row in report["workloads"][0]["rows"]:
        assert row["agrees"] is True
        assert row["agreement"]["gradients_from_loop"] < 1e-4


def test_memory(run):
    words = ["benchmark", "forces", "--workload", "molecule", "--members", 1]
    words += ["--strategy", "loop", "--repeats", 1, "--features", 8, "--json", "-"]
    (row,) = run(*words, "--max-memory", 4).json()["workloads"][0]["rows"]
    assert row["peak_mib"] > 0
    assert row["peak_method"] in ("VmHWM", "ru_maxrss")
    assert row["peak_ratio_to_one"] == 1.0


def test_a_strategy_with_wrong_numbers_is_named_and_has_status_one(run, monkeypatch):
    predict = ForceField.predict

    def altered(self, graph, wanted=("energy", "forces"), **options):
        out = predict(self, graph, wanted, **options)
        if options.get("strategy") == "batched":
            out["forces"].detach()[-1] *= 1.01
        return out

    monkeypatch.setattr(ForceField, "predict", altered)
    result = run(*QUICK, "--strategy", "batched", "--json", "-")
    assert result.status == 1
    assert "batched with 4 outputs of molecule does not agree with the loop" in result.err
    assert result.json()["agrees"] is False


def test_structures_and_a_model_of_ones_own(run, committee, tmp_path):
    write(tmp_path / "two.xyz", [molecule("H2O"), molecule("CH4")])
    words = ["benchmark", "forces", "--structure", tmp_path / "two.xyz", "--index", "0"]
    words += ["--model", committee, "--members", 2, "--strategy", "loop", "--repeats", 1]
    (workload,) = run(*words, "--no-memory", "--json", "-").json()["workloads"]
    assert workload["workload"] == "two.xyz"
    assert workload["sizes"]["n_atoms"] == 3
    assert workload["dtype"] == "float64"  # of the model file


def test_threads_are_put_back(run):
    before = torch.get_num_threads()
    words = [*QUICK, "--strategy", "loop", "--threads", before + 1, "--json", "-"]
    assert run(*words).json()["machine"]["threads"] == before + 1
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--workload", "molcule"], "Did you mean 'molecule'"),
        (["--strategy", "chian"], "Did you mean 'chain'"),
        (["--members", "1,x"], "--members takes whole numbers"),
        (["--members", "0"], "above zero"),
        (["--repeats", "0"], "repeats must be at least 1"),
        (["--max-seconds", "0"], "max_seconds must be above zero"),
        (["--backbone", "Painn"], "Did you mean 'PaiNN'"),
        (["--features", "0"], "n_features must be at least 1"),
        (["--model", "m.pt", "--layers", "2"], "--model brings its own backbone"),
        (["--model", "missing.pt"], "missing.pt"),
        (["--structure", "missing.xyz"], "missing.xyz"),
        (["--index", "0"], "--index chooses frames of --structure"),
        (["--threads", "0"], "threads must be a whole number above zero"),
        (["--dtype", "float16"], "float32 or float64"),
        (["--device", "nowhere"], "no device 'nowhere'"),
        (["--json", "no/such/folder.json"], "no folder no/such"),
        (["--plot", "times.pdf"], "times.png"),
    ],
)
def test_mistakes_are_one_line_before_any_work(run, words, message, monkeypatch):
    def never(*_args, **_options):
        raise AssertionError("work was done")

    monkeypatch.setattr("gnnforce.testing.benchmark.probe", never)
    result = run("benchmark", "forces", *words)
    assert result.status == 2
    assert result.out == ""
    assert message in result.err
    assert result.err.startswith("error: ")
    assert result.err.count("\n") == 1


def test_help(run):
    assert "forces" in run("benchmark").out
    assert run("benchmark").status == 0
    result = run("benchmark", "forces", "--help")
    assert "gnnforce benchmark forces" in result.out.split("Example")[1]
    assert all(word in result.out for word in ("--json", "--plot", "--training"))
    assert run("benchmark", "force").status == 2


def test_parts_of_a_setup():
    assert numbers_of("16") == [16]
    common = common_setup("SchNet", {"n_features": None, "cutoff": 4.0}, None)
    assert common["sizes"] == {"n_features": 64, "n_layers": 3, "cutoff": 4.0}
    names = [setup.name for setup in setups_of(common, None, None, None)]
    assert names == ["molecule", "molecules", "periodic"]
    both = setups_of(common, ["batch", "batch"], Path("a.xyz"), None)
    assert [setup.name for setup in both] == ["batch", "a.xyz"]
    with pytest.raises(UserError, match="--index"):
        setups_of(common, None, None, "0")
