"""The tools for GPU nodes, and their tests, need nothing of the pod.

A cluster installs them without the extra `pods`, so its packages are missing there too.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
#: Imports everything below gpu/ and slurm/ and collects their tests, where the pod's rooms and
#: packages cannot be imported.
_ALONE = """
import importlib, pkgutil, sys
POD = {"agents", "api", "client", "controller", "gate", "guests", "history", "launcher",
       "placement", "server", "store", "timeline", "top", "wire"}

class Refuse:
    def find_spec(self, name, path=None, target=None):
        top, _, rest = name.partition(".")
        if top in ("grpc", "mpi4py", "numpy") or top == "podwright" and rest.split(".")[0] in POD:
            raise ImportError(f"{name} is of the pod")

sys.meta_path.insert(0, Refuse())
import podwright.gpu, podwright.slurm
imported = []
for package in (podwright.gpu, podwright.slurm):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith(".__main__"):
            importlib.import_module(module.name)
            imported.append(module.name)
assert len(imported) > 100, imported
import pytest
words = ["-q", "--collect-only", "-p", "no:xdist"]
sys.exit(pytest.main([*words, "tests/gpu"]))
"""


def test_gpu_and_slurm_load_nothing_of_the_pod() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _ALONE], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
