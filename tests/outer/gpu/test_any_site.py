"""explain-request against real Slurm on random sites: 152 requests ordinarily, 2,000 under soak,
and what an srun on its own or in salloc starts.

Sites have nodes of several kinds, partitions, features, weights, threads, shares and switches; what
is told and compared: whether a request is refused, waits or starts, on which nodes, with which
GPUs, CPUs and memory, and what each task sees.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.outer.gpu.any_lab import AnyLab
from tests.outer.lab import release
from tests.slurm.gpus.requests.any_options import some_options
from tests.slurm.gpus.requests.any_outcome import (
    UNKNOWN,
    lone_seen,
    lone_told,
    options_of,
    read_shown,
    seen,
    told,
)
from tests.slurm.gpus.requests.any_site import any_site

pytestmark = [pytest.mark.outer, pytest.mark.slurm]

SOAK = bool(os.environ.get("PODWRIGHT_SOAK"))
SEEDS = range(100, 120) if SOAK else (21, 22)
EACH = 100 if SOAK else 38


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
def test_a_lone_srun_binds_its_tasks_as_told(name: str) -> None:
    with AnyLab(any_site(BOUND), release(name)) as lab:
        known, version = read_shown(lab.shown())
        ours = {options: lone_told(known, options, version) for options in LONE}
        assert ours == {options: lone_seen(lab.alone(options)) for options in LONE}


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("command", ["srun", "salloc"])
@pytest.mark.parametrize("name", ["oldest", "newest"])
def test_tasks_of_other_commands_are_as_told(name: str, command: str) -> None:
    """Of 300 requests each; what has not started after 8 s is taken to wait."""
    wrong: dict[str, tuple[str, str]] = {}
    for seed in range(200, 210):
        site = any_site(seed)
        with AnyLab(site, release(name)) as lab:
            known, version = read_shown(lab.shown())
            for options in some_options(seed, 30, site):
                ours = lone_told(known, options, version, command)
                if ours != UNKNOWN:
                    patience = 60 if ours else 8
                    real = lone_seen(lab.alone(options, command, patience=patience))
                    if ours != real:
                        wrong[f"{seed}: {options}"] = (ours, real)
    assert wrong == {}


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", ["oldest", "newest"])
def test_requests_end_as_told(name: str) -> None:
    wrong: dict[str, str] = {}
    asked: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    total = without = 0
    for seed in SEEDS:
        site = any_site(seed)
        with AnyLab(site, release(name)) as lab:
            known, version = read_shown(lab.shown())
            for options in some_options(seed, EACH, site):
                total += 1
                asked.update(options_of(options))
                ours = told(known, options, version)
                if ours == UNKNOWN:
                    without += 1
                    unknown.update(options_of(options))
                    continue
                real = seen(lab.outcome(options))
                if ours != real:
                    wrong[options] = f"{seed}: {options}\n  told {ours}\n  seen {real}"
    assert not wrong, "\n".join([f"{len(wrong)} of {total} ended otherwise", *wrong.values()])
    assert without <= 0.03 * total
    if SOAK:
        few = {option: count for option, count in asked.items() if count < 40}
        assert few == {}
        assert {o: n for o, n in unknown.items() if n > 0.1 * asked[o]} == {}
