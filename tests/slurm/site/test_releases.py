"""What a release does is asked of one object, by name; versions are compared nowhere else."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import podwright
from podwright.slurm.site.releases import Release, ReleaseRange, SlurmVersion, release_of

_HOME = Path(podwright.__file__).parent
#: The rooms that know releases of Slurm.
_ROOMS = ("slurm", "gpu", "guests/slurm")
#: What each release does that the one before it does not; -name: what it no longer does.
TABLE: dict[SlurmVersion, set[str]] = {
    (22, 5): {"needs_task_none", "srun_ignores_cpus_per_task"},
    (23, 2): {"gres_cores_are_sockets", "twin_keeps_reserved_cores", "-needs_task_none"},
    (23, 11): {"can_disable_cgroups", "-srun_ignores_cpus_per_task"},
    (24, 5): {"has_segments"},
    (24, 11): {"block_topology", "imex_switch"},
    (25, 5): {"last_mail_type_wins", "several_topologies"},
    (25, 11): {"has_large_segments"},
    (26, 5): {"refuses_gres_beside_gpus_per_node", "never_starts_one_task_of_several"},
}
NAMES = [name for name, one in vars(Release).items() if isinstance(one, ReleaseRange)]


def does(version: SlurmVersion) -> set[str]:
    release = release_of(version)
    return {name for name in NAMES if getattr(release, name)}


@pytest.mark.parametrize("version", TABLE, ids=lambda v: f"{v[0]}.{v[1]:02}")
def test_a_release_does_what_its_row_says(version: SlurmVersion) -> None:
    releases = list(TABLE)
    at = releases.index(version)
    now, before = does(version), does(releases[at - 1]) if at else set()
    changes = (now - before) | {f"-{name}" for name in before - now}
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
        for room in _ROOMS
        for path in (_HOME / room).rglob("*.py")
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
    code = "import podwright.gpu.lint, sys; sys.exit('dataclasses' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
