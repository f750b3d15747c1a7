"""What a release does is asked of one object, by name; versions are compared nowhere else."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import podwright.slurm
from podwright.slurm.site.releases import Release, ReleaseRange, Version, release_of

_HOME = Path(podwright.slurm.__file__).parent
#: What each release does that the one before it does not; -name: what it no longer does. All
#: else came with 23.02, when Slurm's choice of GPUs was written anew.
TABLE: dict[Version, set[str]] = {
    (22, 5): {
        "checks_chosen_nodes",
        "srun_cuts_nodelist",
        "srun_ignores_cpus_per_task",
        "steps_follow_job_cores",
    },
    (23, 2): {
        "srun_reads_tres_per_task",
        "counts_cpus_of_gpus",
        "-srun_cuts_nodelist",
        "-steps_follow_job_cores",
    },
    (23, 11): {"srun_reads_tasks_per_core", "-srun_ignores_cpus_per_task"},
    (24, 5): {"has_segments", "remembers_missing_gpus"},
    (24, 11): {
        "block_topology",
        "imex_switch",
        "limits_cpus_of_tasks",
        "limits_memory_of_richest_node",
    },
    (25, 5): {
        "binds_by_short_names",
        "bounds_leaves_in_use",
        "counts_cpus_of_tasks_late",
        "last_mail_type_wins",
        "several_topologies",
        "skips_oversized_jobs",
        "spreads_over_weights",
        "-srun_reads_tres_per_task",
    },
    (25, 11): {
        "offers_last_node",
        "binds_single_task",
        "counts_tasks_of_all_cores",
        "drops_poorest_node",
        "has_large_segments",
        "lays_tasks_per_node",
        "ranks_nodes_by_product",
        "rounds_cores_of_memory_up",
        "tasks_bound_gpus",
        "-counts_cpus_of_gpus",
    },
    (26, 5): {
        "counts_free_threads",
        "refuses_fewer_tasks_than_nodes",
        "tasks_bound_nodes",
        "tries_single_nodes_first",
        "-checks_chosen_nodes",
    },
}
NAMES = [name for name, one in vars(Release).items() if isinstance(one, ReleaseRange)]


def does(version: Version) -> set[str]:
    release = release_of(version)
    return {name for name in NAMES if getattr(release, name)}


@pytest.mark.parametrize("version", TABLE, ids=lambda v: f"{v[0]}.{v[1]:02}")
def test_a_release_does_what_its_row_says(version: Version) -> None:
    releases = list(TABLE)
    at = releases.index(version)
    now, before = does(version), does(releases[at - 1]) if at else set()
    changes = (now - before) | {f"-{name}" for name in before - now}
    if version == (23, 2):
        late = {word.removeprefix("-") for row in TABLE.values() for word in row}
        changes -= set(NAMES) - late
        assert set(NAMES) - late <= now
    assert changes == TABLE[version]
    assert str(release_of(version)) == f"{version[0]}.{version[1]:02}"
    assert release_of(version) is release_of(version)  # chosen once


def test_releases_between_and_beyond_do_as_the_last_before_them() -> None:
    assert does((23, 8)) == does((23, 2))
    assert does((27, 11)) == does((26, 5))
    assert does((21, 8)) == set()


def _trees() -> dict[Path, ast.Module]:
    return {
        path.relative_to(_HOME): ast.parse(path.read_text())
        for path in _HOME.rglob("*.py")
        if path.name != "releases.py"
    }


def test_every_behaviour_is_asked_for() -> None:
    asked = {
        node.attr
        for tree in _trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
    }
    assert sorted(set(NAMES) - asked) == []


def test_no_other_module_compares_versions() -> None:
    """But with the versions of Slurm's options, which are a table as well."""
    found = []
    for path, tree in _trees().items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Compare):
                continue
            for one in (node.left, *node.comparators):
                pair = isinstance(one, ast.Tuple) and [
                    e.value for e in one.elts if isinstance(e, ast.Constant)
                ]
                if pair and len(pair) == 2 and isinstance(pair[0], int) and 20 <= pair[0] <= 40:
                    found.append(f"{path}:{node.lineno}")
                if isinstance(one, ast.Name) and one.id in ("newer", "newest"):
                    found.append(f"{path}:{node.lineno}")
    assert found == []


def test_lint_starts_without_dataclasses() -> None:
    """That module reads the standard library's inspect: a quarter of lint's start."""
    code = "import podwright.slurm.gpus.lint, sys; sys.exit('dataclasses' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
