"""Job scripts with what they are for: torch over gloo, Ray on processors.

torch and Ray come into an environment of their own: they are no dependencies of Podwright. Their
size makes this a test of the long ring (make soak).
"""

from __future__ import annotations

import shutil
import subprocess
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.outer.gpu.site import ScriptSite, script_site

pytestmark = [
    pytest.mark.outer,
    pytest.mark.slurm,
    pytest.mark.soak,
    pytest.mark.timeout(1800),
]

TRAIN = """
import os, torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank())])
dist.all_reduce(total)
print("rank", dist.get_rank(), "of", dist.get_world_size(), "sum", total.item(), flush=True)
dist.barrier()
dist.destroy_process_group()
"""
TUNE = """
import os, signal, sys, time
from pathlib import Path
rank = os.environ["RANK"]
saved = Path(os.environ["CHECKPOINT_DIR"], f"rank{rank}")
def stop(*_):
    saved.write_text("step 5")
    sys.exit(3)
signal.signal(signal.SIGTERM, stop)
if saved.exists():
    sys.stdout.write(f"rank {rank} goes on from {saved.read_text()}\\n")
    sys.exit(0)
sys.stdout.write(f"rank {rank} begins\\n")
sys.stdout.flush()
time.sleep(600)
"""
RAY = """
import os, socket, sys, time, ray
ray.init(address=os.environ["RAY_ADDRESS"])
@ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
def where():
    time.sleep(2)
    return socket.gethostname()
hosts = sorted(set(ray.get([where.remote() for _ in range(4)])))
print("hosts", hosts, "GPUs", ray.cluster_resources()["GPU"], flush=True)
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def site() -> Iterator[ScriptSite]:
    with script_site() as site:
        yield site


@pytest.fixture(scope="module")
def path() -> Iterator[str]:
    """A folder with python, torchrun and ray, on a path that all hosts have: not in /tmp."""
    folder = Path("/var/tmp/podwright-recipes")
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    wanted = ["torch==2.13.0", "numpy", "ray==2.60.0"]
    subprocess.run([folder / "bin/python", "-m", "pip", "install", "-q", *wanted], check=True)
    yield str(folder / "bin")
    shutil.rmtree(folder, ignore_errors=True)


def test_torchrun_over_two_nodes(site: ScriptSite, path: str) -> None:
    program = site.program("train.py", TRAIN)
    state, _, said = site.run(site.template("torchrun"), program, path=path)
    assert state == "COMPLETED", said
    for rank in range(4):
        assert f"rank {rank} of 4 sum 6.0" in said


def test_fine_tuning_goes_on_after_its_time(site: ScriptSite, path: str) -> None:
    program = site.program("tune.py", TUNE)
    state, said = site.run_again(site.template("finetune"), program, path=path)
    assert state == "COMPLETED", said
    assert said.count("goes on from step 5") == 4


@pytest.mark.parametrize("name", ["ray", "rl"])
@pytest.mark.parametrize("code", [0, 7])
def test_rays_cluster_ends_with_the_programs_code(
    site: ScriptSite, path: str, name: str, code: int
) -> None:
    program = site.program("program.py", RAY)
    text = site.template(name)
    state, ended, said = site.run(text, "python", program, str(code), path=path, seconds=400)
    assert (state, ended) == ("FAILED" if code else "COMPLETED", code), said
    assert "hosts ['n1', 'n2'] GPUs 4.0" in said
    for word in ("Killed", "srun: error", "Traceback", "there are not"):
        assert word not in said
    assert site.left("raylet", "gcs_server", "ray start") == []
    for host in ("n1", "n2"):
        assert "ray" not in site.hosts.exec(host, "ls", "/tmp").stdout
