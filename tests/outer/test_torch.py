"""The example in torch under poprun, torchrun and alone; tensors in popdist's collectives;
DistributedDataParallel that moves with its own checkpoint.

torch comes into an environment of its own: it is no dependency of Podwright. Its size makes this
a test of the long ring (make soak).
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.whole.conftest import Pod, make_pod, pod16  # noqa: F401
from tests.whole.test_launch_moves import PATIENT, asked, moves

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]

REPOSITORY = Path(__file__).parents[2]
EXAMPLE = str(REPOSITORY / "examples" / "train_torch.py")
BIN = Path(sys.executable).parent
TWO = ("--num-replicas=2", "--num-instances=2")

TENSORS = """
import torch, popdist
popdist.init()
me = popdist.getInstanceIndex()
total = popdist.allReduceSum(torch.arange(3, dtype=torch.float32, requires_grad=True) + me)
every = popdist.allGather(torch.tensor([me == 1]))
sent = popdist.broadcast(torch.full((2,), float(me)), 1)
try:
    popdist.allReduceSum(torch.ones(2, dtype=torch.bfloat16))
except popdist.BadUse as error:
    why = str(error)
assert all(isinstance(values, torch.Tensor) for values in (total, every, sent))
popdist.execute_on_instances({0}, print, total.tolist(), every.tolist(), sent.tolist(), why)
"""
#: Goes on from its checkpoint; told to wait, it stands still half-way until it is to move.
DDP = """
import os, sys, time
import torch, torch.distributed as dist
from torch import nn
import popdist, popdist.torch

rank, size = popdist.torch.init_process_group("gloo")
popdist.init()
popdist.onMove()
torch.manual_seed(0)
points = torch.rand(256, 2) * 2 - 1
inside = (points.norm(dim=1) < 0.7).float()
mine = slice(256 * rank // size, 256 * (rank + 1) // size)
net = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1))
model = nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
step, there = 0, os.path.exists("checkpoint.pt")
if there:
    kept = torch.load("checkpoint.pt")
    net.load_state_dict(kept["net"])
    optimizer.load_state_dict(kept["optimizer"])
    step = kept["step"]
print("up from", step, flush=True)
while step < 40:
    if step >= 20 and popdist.mustMove():
        if rank == 0:
            kept = {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save(kept, "checkpoint.pt")
        dist.destroy_process_group()
        sys.exit(popdist.MOVED)
    if step == 20 and "wait" in sys.argv and not there:
        time.sleep(0.05)
        continue
    optimizer.zero_grad()
    said = model(points[mine]).squeeze(1)
    nn.functional.binary_cross_entropy_with_logits(said, inside[mine]).backward()
    optimizer.step()
    step += 1
weights = torch.cat([weight.flatten() for weight in net.parameters()])
if rank == 0:
    print("ended with", weights.double().sum().item(), flush=True)
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python with torch, numpy, and popdist as it is here."""
    folder = tmp_path_factory.mktemp("torch")
    venv.create(folder, with_pip=True)
    found = folder / "bin" / "python"
    subprocess.run(
        [found, "-m", "pip", "install", "-q", "torch==2.13.0", "numpy", "mpi4py"], check=True
    )
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "here.pth").write_text(f"{REPOSITORY / 'src'}\n")
    return str(found)


def run(*words: str) -> str:
    environ = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, capture_output=True, text=True, env=environ, timeout=600)
    assert done.returncode == 0, done
    return done.stdout


def test_the_example_learns_whoever_starts_it(python: str) -> None:
    torchrun = str(Path(python).parent / "torchrun")
    poprun = (str(BIN / "poprun"), *TWO)
    said = [
        run(python, EXAMPLE),
        run(*poprun, "--launcher=local", python, EXAMPLE),
        run(*poprun, python, EXAMPLE),
        run(torchrun, "--standalone", "--nproc-per-node=2", EXAMPLE),
    ]
    ends = [text.splitlines()[-1].partition("instances ")[2] for text in said]
    assert ends == [f"{n}, the same weights: True, accuracy 1.00" for n in (1, 2, 2, 2)]


@pytest.mark.parametrize("launcher", ["local", "mpirun"])
def test_tensors(python: str, launcher: str) -> None:
    words = (str(BIN / "poprun"), *TWO, f"--launcher={launcher}", python, "-c", TENSORS)
    assert run(*words) == (
        "[1,0]<stdout>: [1.0, 3.0, 5.0] [[False], [True]] [1.0, 1.0] "
        "popdist sums numbers, not torch.bfloat16: numpy has nothing like it\n"
    )


def test_ddp_moves_with_its_own_checkpoint(
    python: str,
    pod16: Pod,  # noqa: F811
) -> None:
    """It ends with the very weights that it has where nothing moves."""
    (pod16.folder / "ddp.py").write_text(DDP)
    still = pod16.good("poprun", "--allow-run-as-root=yes", *TWO, python, "ddp.py")
    words = [str(BIN / "poprun"), "--allow-run-as-root=yes", *PATIENT, python, "ddp.py", "wait"]
    launch = subprocess.Popen(
        words,
        env={**pod16.environ, "OMP_NUM_THREADS": "1"},
        cwd=pod16.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        asked(pod16, launch)
        out, _ = launch.communicate(timeout=600)
    finally:
        launch.kill()
    assert launch.returncode == 0, out
    assert out.count("up from 20") == 2
    ends = [text.partition("ended with ")[2].split()[0] for text in (still, out)]
    assert ends[0] == ends[1]
    assert moves(pod16)["done"] == 1
