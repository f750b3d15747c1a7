"""popdist among instances without MPI: the local launcher, with the secret of the run."""

from __future__ import annotations

import sys

from tests.launcher.conftest import Launcher

THREE = ("--num-replicas=3", "--num-instances=3", "--launcher=local")

PROGRAM = """
import os, sys
import numpy as np
import popdist
popdist.init()
path = os.environ["POPDIST_SECRET_FILE"]
assert os.stat(path).st_mode & 0o777 == 0o600
assert open(path).read() not in str(os.environ)
assert "mpi4py" not in sys.modules
total = popdist.allReduceSum(np.arange(4) + popdist.getInstanceIndex())
popdist.execute_on_instances({2}, print, total.tolist())
"""


def test_instances_without_mpi_compute_a_sum_together(launcher: Launcher) -> None:
    ran = launcher.run(*THREE, sys.executable, "-c", PROGRAM)
    assert ran.code == 0, ran
    assert ran.out == "[1,2]<stdout>: [3, 6, 9, 12]\n"
    launcher.leaves_nothing()


def test_one_instance_builds_and_the_others_load(launcher: Launcher) -> None:
    """They use a folder of this run, which is removed with it."""
    program = (
        "import popdist, os\n"
        "def build():\n"
        "    print('built', flush=True)\n"
        "    return os.environ['POPDIST_EXECUTABLE_CACHE_PATH']\n"
        "print(popdist.compile_once('k', build))\n"
    )
    ran = launcher.run(*THREE, sys.executable, "-c", program)
    assert ran.code == 0, ran
    said = [line.partition(": ")[2] for line in ran.out.splitlines()]
    assert said.count("built") == 1
    assert len(set(said)) == 2
    launcher.leaves_nothing()


def test_an_instance_that_dies_ends_the_others(launcher: Launcher) -> None:
    program = (
        "import os, popdist; popdist.init()\n"
        "if popdist.getInstanceIndex() == 1: os.abort()\n"
        "popdist.barrier()\n"
    )
    ran = launcher.run(*THREE, sys.executable, "-c", program)
    assert ran.code in (1, 134), ran
    launcher.leaves_nothing()
