"""The limit of memory holds in a process of its own, for every strategy that splits."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="reads the peak of memory from /proc"
)

# MALLOC_* settings make the process return memory at once, so that its peak is what was used
SCRIPT = """
import json, sys
import torch
from ase.build import bulk
import gnnforce as gf
torch.set_num_threads(1)
architecture, strategy, memory = sys.argv[1:]
def peak():  # of this program: ru_maxrss starts with that of the process that forked it
    lines = open("/proc/self/status").read().splitlines()
    return 1024 * int(next(x for x in lines if x.startswith("VmHWM")).split()[1])
atoms = bulk("Si", cubic=True) * (4, 4, 4)
graph = gf.AtomGraph.from_atoms(atoms, 5.0)
model = gf.ForceField(getattr(gf, architecture)([14]), [gf.Head("e", members=24)]).eval()
model.predict(graph, weights=gf.mean_of("e"), strategy="loop")
model.predict(graph, ["energy"])
before = peak()
out = model.predict(graph, strategy=strategy, memory=memory)
print(json.dumps({"bytes": peak() - before, "pieces": out.choice.pieces}))
"""


def measured(architecture: str, strategy: str, memory: str) -> dict:
    found = subprocess.run(
        [sys.executable, "-c", SCRIPT, architecture, strategy, memory],
        capture_output=True,
        text=True,
        check=True,
        env={
            "MALLOC_TRIM_THRESHOLD_": "0",
            "MALLOC_MMAP_THRESHOLD_": "65536",
            "OMP_NUM_THREADS": "1",
            "PATH": "",
        },
    )
    return json.loads(found.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["PaiNN", "SchNet"])
def test_batched(architecture):
    """Without a limit it takes far more, so that the test can fail."""
    limit = 300_000_000
    whole = measured(architecture, "batched", "100GB")
    cut = measured(architecture, "batched", str(limit))
    assert whole["pieces"] == 1
    assert cut["pieces"] > 1
    assert whole["bytes"] > 1.5 * cut["bytes"]
    assert cut["bytes"] < 1.3 * limit


@pytest.mark.slow
def test_chain_takes_little():
    """Of 24 outputs, beyond what one pull-back by the loop took before."""
    found = measured("PaiNN", "chain", "100GB")
    assert found["pieces"] == 1
    assert found["bytes"] < 100_000_000
