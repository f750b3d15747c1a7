"""Profiles and offline launches: the variables of instances, and the guide's conflicts."""

from __future__ import annotations

import json

import pytest

from podwright.errors import InvalidRequest
from podwright.fabric import IPU, preset, presets
from podwright.launcher import make_plan, parse
from podwright.launcher.options._offline import TARGET_SIZES
from tests.launcher.conftest import Launcher

FOUR = ("--num-replicas=4", "--num-instances=4")
REPORT = "--autoreport-dir=/tmp/profile"


def test_instances_are_told_the_folder_of_their_profiles() -> None:
    plan = make_plan(parse([*FOUR, REPORT, "t"]), {"POPLAR_ENGINE_OPTIONS": "{}"})
    assert dict(plan.environment)["POPDIST_AUTOREPORT_DIRECTORY"] == "/tmp/profile"


SET = '{"autoReport.directory":"/tmp/x"}'


@pytest.mark.parametrize(
    ("words", "environ"),
    [
        ([], {"POPLAR_ENGINE_OPTIONS": SET}),
        ([f"--mpi-local-args=-x POPLAR_ENGINE_OPTIONS={SET}"], {}),
        ([f"--mpi-local-args=-x POPLAR_ENGINE_OPTIONS='{SET}'"], {}),
        ([f"--instance-mpi-local-args=0:-x POPLAR_ENGINE_OPTIONS={SET}"], {}),
        ([], {"POPLAR_ENGINE_OPTIONS": "{autoReport.directory:broken"}),
    ],
)
def test_conflicts_that_the_guide_names_are_refused(
    words: list[str], environ: dict[str, str]
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        make_plan(parse([*FOUR, REPORT, *words, "t"]), environ)
    assert caught.value.message == (
        "autoreport-dir command line argument cannot be specified when POPLAR_ENGINE_OPTIONS "
        "contains autoReport.directory setting."
    )
    make_plan(parse([*FOUR, *words, "t"]), environ)


@pytest.mark.parametrize(
    "text",
    [
        '-x A={"a":"b c", "d": {"e": [1]}} -x B=2',
        """-x A='{"a":"b c", "d": {"e": [1]}}' -x B=2""",
        """-x 'A={"a":"b c", "d": {"e": [1]}}' -x B=2""",
    ],
)
def test_json_in_arguments_for_mpirun_survives(text: str) -> None:
    """In the guide's own lines, the shell removes the quotes around JSON."""
    plan = make_plan(parse(["--num-replicas=2", "--mpi-local-args", text, "t"]), {})
    value = '{"a":"b c", "d": {"e": [1]}}'
    assert plan.instances[0].mpi_arguments == ("-x", f"A={value}", "-x", "B=2")


def test_arguments_that_only_look_like_json_are_split() -> None:
    words = ["--num-replicas=2", "--mpi-local-args", "-x A={b -x C={ -x 'D={}'", "t"]
    arguments = make_plan(parse(words), {}).instances[0].mpi_arguments
    assert arguments == ("-x", "A={b", "-x", "C={", "-x", "D={}")


def test_offline_targets_are_the_clusters_that_have_names() -> None:
    pods = [name for name in presets() if preset(name).family is IPU]
    assert list(TARGET_SIZES) == pods
    assert {name: preset(name).size for name in pods} == TARGET_SIZES


@pytest.mark.parametrize(
    ("line", "target", "wanted"),
    [
        ("--num-replicas=8 --num-instances=4 --ipus-per-replica=2", "pod16", "16 default mesh 4"),
        ("--num-replicas=64 --num-instances=4", "pod64", "64 slidingWindow torus 16"),
        ("--num-replicas=128 --num-instances=2", "pod256", "64 slidingWindow torus 64"),
        ("--num-replicas=32 --num-instances=2 --num-ilds=2", "pod128", "16 default mesh 16"),
    ],
)
def test_an_offline_target_sets_target_options(line: str, target: str, wanted: str) -> None:
    words = [*line.split(), "--offline-mode=yes", f"--offline-target={target}", "t"]
    plan = make_plan(parse(words), {"POPLAR_TARGET_OPTIONS": "{}"})
    options = json.loads(dict(plan.environment)["POPLAR_TARGET_OPTIONS"])
    names = ("ipuLinkDomainSize", "ipuLinkConfiguration", "ipuLinkTopology", "instanceSize")
    assert [options[name] for name in names] == wanted.split()
    assert "none: offline" in str(plan)
    assert "partition:" not in str(plan)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--offline-target=pod16"], "is for launches without devices"),
        (["--offline-mode=1", "--offline-target=pod4", "--num-replicas=8"], "and pod4 has 4"),
    ],
)
def test_mistakes_with_offline_options_are_refused(words: list[str], why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        make_plan(parse([*words, "t"]), {})


def test_offline_runs_ask_no_server(launcher: Launcher) -> None:
    ran = launcher.run(
        *("--num-replicas=8", "--num-instances=2", "--offline-mode=yes", "--offline-target=pod16"),
        *("--print-topology=yes", "sh", "-c"),
        'echo "$POPDIST_NUM_LOCAL_REPLICAS ${IPUOF_VIPU_API_HOST-none} $POPLAR_TARGET_OPTIONS"',
    )
    assert ran.code == 0, ran
    assert '[1,1]<stdout>: 4 none {"ipuLinkDomainSize":"8",' in ran.out
    assert "poprun topology" in ran.out
    assert launcher.calls() == []
    launcher.leaves_nothing()
