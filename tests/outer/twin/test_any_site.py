"""A twin against real Slurm on random sites: 20 requests ordinarily, 1,000 under soak.

Sites have nodes of several kinds, partitions, features, weights, threads, shares and switches. It
is compared whether a request is refused, waits or starts, on which nodes, with which GPUs, CPUs and
memory, and what each task sees.
"""

from __future__ import annotations

import os
import shlex

import pytest

from podwright.errors import WrongState
from podwright.slurm.twin import Submission, Twin
from tests.outer.gpu.any_lab import AnyLab
from tests.outer.gpu.any_options import some_options
from tests.outer.gpu.any_outcome import answered, lone_seen, seen, site_files, tasks_line
from tests.outer.gpu.any_site import any_site
from tests.outer.lab import release
from tests.outer.twin.test_ask import installed

pytestmark = [pytest.mark.outer, pytest.mark.slurm, pytest.mark.twin]

SOAK = bool(os.environ.get("PODWRIGHT_SOAK"))
SEEDS = range(100, 110) if SOAK else (21,)
EACH = 100 if SOAK else 20
#: A site whose partitions say CpuBind=sockets; its nodes with two threads are `big`
BOUND = 6459
LONE = (
    "--constraint=big --ntasks=2 --nodes=1",
    "--constraint=big --ntasks=3 --nodes=1 --exclusive",
    "--gres=gpu:1 --ntasks=3 --nodes=1 --exclusive --cpu-bind=sockets",
    "--gres=gpu:2 --ntasks=2 --nodes=1 --gpu-bind=closest --cpu-bind=sockets",
    "--gres=gpu:2 --ntasks=2 --nodes=1 --gpu-bind=closest --cpu-bind=none",
    "--gres=gpu:2 --ntasks=2 --nodes=1 --cpus-per-task=2 --gpu-bind=closest --cpu-bind=threads",
    "--constraint=big --ntasks=2 --nodes=1 --cpu-bind=cores",
    "--constraint=big --ntasks=2 --nodes=1 --cpu-bind=verbose",
    "--constraint=big --ntasks=2 --nodes=1 --hint=compute_bound",
    "--constraint=big --ntasks=2 --nodes=1 --hint=multithread",
    "--constraint=big --ntasks=2 --nodes=1 --hint=nomultithread --cpu-bind=verbose",
    "--constraint=big --ntasks=2 --nodes=1 --hint=nomultithread --cpu-bind=sockets",
    "--constraint=big --ntasks=2 --nodes=1 --ntasks-per-core=1 --exclusive",
    "--constraint=big --ntasks=2 --nodes=1 --ntasks-per-core=2",
    "--constraint=big --ntasks=2 --nodes=1 --ntasks-per-socket=1 --exclusive",
    "--constraint=big --ntasks=2 --nodes=1 --threads-per-core=1",
    "--constraint=big --ntasks=2 --nodes=1 --extra-node-info=1:2",
    "--constraint=big --ntasks=2 --nodes=1 --extra-node-info=1 --cpu-bind=threads",
    "--constraint=big --ntasks=3 --nodes=1 --exclusive --cpus-per-task=2 -m *:fcyclic",
)


@pytest.mark.parametrize("name", ["oldest", "newest"])
def test_a_lone_srun_binds_its_tasks_as_in_a_twin(name: str) -> None:
    wrong = {}
    with (
        AnyLab(any_site(BOUND), release(name)) as lab,
        Twin(site_files(lab.shown()), installed(release(name))) as twin,
    ):
        for options in LONE if SOAK else LONE[:6]:
            try:
                ours = tasks_line(twin.tasks(Submission("srun", tuple(shlex.split(options)))))
            except WrongState:
                ours = ""
            if ours != (real := lone_seen(lab.alone(options))):
                wrong[options] = (ours, real)
    assert wrong == {}


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", ["oldest", "newest"])
def test_requests_end_as_in_a_twin(name: str) -> None:
    """At most 3 % may end otherwise, and each that does is printed."""
    wrong: list[str] = []
    total = 0
    for seed in SEEDS:
        site = any_site(seed)
        with (
            AnyLab(site, release(name)) as lab,
            Twin(site_files(lab.shown()), installed(release(name))) as twin,
        ):
            for options in some_options(seed, EACH, site):
                total += 1
                try:
                    ours = answered(twin, shlex.split(options))
                except WrongState as error:
                    ours = "hangs" if "no step starts" in error.problem else "step"
                if ours != (real := seen(lab.outcome(options))):
                    wrong.append(f"{seed}: {options}\n  twin {ours}\n  lab  {real}")
    print(f"{name}: {total - len(wrong)} of {total} equal", *wrong, sep="\n")
    assert len(wrong) <= 0.03 * total, "\n".join(wrong)
