"""The command line of mpirun, and its handling of arguments that Open MPI has dropped."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from podwright.errors import InvalidRequest, NotFound
from podwright.launcher import Mpirun, make_plan, parse
from podwright.launcher.instances._run_folder import RunFolder
from podwright.launcher.run._mpi_arguments import own_variables

FOLDER = RunFolder("run", "/tmp/run", "/dev/shm/run", ())
WRAPPER = ["/bin/sh", "/tmp/run/wrapper"]
LINE = ["--num-replicas=4", "--num-instances=2"]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A PATH with only an mpirun on it."""
    path = tmp_path / "mpirun"
    path.write_text("#!/bin/sh\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {"PATH": str(tmp_path)}


def test_instances_that_are_started_alike_share_a_context(environ: dict[str, str]) -> None:
    line = ["--num-replicas=4", "--num-instances=4", "--instance-mpi-local-args=3:--wdir /y"]
    plan = make_plan(
        parse([*line, "--mpi-local-args=-x A=1 -x PATH", "--mpi-global-args=--q", "t"]), {}
    )
    command = Mpirun(environ, uid=1000).command(plan, FOLDER, WRAPPER, ["t", "a b"])
    head = [f"{environ['PATH']}/mpirun", "--bind-to", "none", "--oversubscribe", "--q"]
    script = ["/bin/sh", "/tmp/run/wrapper", "-", "t", "a b"]
    assert list(command.argv) == [
        *head,
        *("-np", "3", *script, ":"),
        *("-np", "1", "--wdir", "/y", *script),
    ]
    assert command.notes == ()
    assert command.environment["PRTE_MCA_prte_tmpdir_base"] == "/tmp/run"
    assert command.environment["OMPI_MCA_btl_sm_backing_directory"] == "/dev/shm/run"


def test_an_instance_has_arguments_of_its_own() -> None:
    plan = make_plan(parse([*LINE, "--instance-mpi-local-args=1:-x A=1 -x PATH", "t"]), {})
    assert own_variables(plan.instances[1]) == {
        "POPDIST_REPLICA_INDEX_OFFSET": "2",
        "POPDIST_LOCAL_INSTANCE_INDEX": "1",
        "IPUOF_VIPU_API_GCD_ID": "1",
        "RANK": "1",
        "LOCAL_RANK": "1",
        "A": "1",
    }


@pytest.mark.parametrize(
    ("given", "wanted", "note"),
    [
        ("--tag-output --allow-run-as-root", [], ""),
        (
            "--mca oob_tcp_if_include eth0 --mca btl_tcp_if_include eth0",
            ["--prtemca", "prte_if_include", "eth0", "--mca", "btl_tcp_if_include", "eth0"],
            "oob_tcp_if_include is prte_if_include in this Open MPI",
        ),
        ("--output-filename f --q", ["--q"], "--output-filename has no effect"),
    ],
)
def test_old_arguments_get_their_new_names(
    environ: dict[str, str], given: str, wanted: list[str], note: str
) -> None:
    plan = make_plan(parse([*LINE, f"--mpi-global-args={given}", "t"]), {})
    command = Mpirun(environ, uid=1000).command(plan, FOLDER, WRAPPER, ["t"])
    assert list(command.argv[4 : command.argv.index("-np")]) == wanted
    assert note in " ".join(command.notes)


@pytest.mark.parametrize(
    ("words", "stray"),
    [
        ("stray", "stray"),
        ("--oversubscribe stray", "stray"),
        ("--map-by core stray", "stray"),
        ("--mca a b stray --q", "stray"),
        ("--map-by=core stray", "stray"),
        ("-v --mca a b --x y -q --map-by core", ""),
        ("--mca btl tcp,self --bind-to none --report-bindings", ""),
    ],
)
@pytest.mark.parametrize("option", ["--mpi-global-args", "--mpi-local-args"])
def test_a_word_that_mpirun_would_start_is_refused(
    environ: dict[str, str], words: str, stray: str, option: str
) -> None:
    """As root, mpirun's answer to it would be a lecture on root."""
    plan = make_plan(parse([*LINE, f"{option}={words}", "t"]), {})
    engine = Mpirun(environ, uid=0)
    if not stray:
        assert engine.command(plan, FOLDER, WRAPPER, ["t"])
        return
    with pytest.raises(InvalidRequest, match=f"'{stray}' is no option of mpirun") as caught:
        engine.command(plan, FOLDER, WRAPPER, ["t"])
    assert option in caught.value.message


def test_who_places_processes_is_not_disturbed(environ: dict[str, str]) -> None:
    plan = make_plan(parse([*LINE, "--mpi-global-args=--map-by core --bind-to core", "t"]), {})
    argv = Mpirun(environ, uid=1000).command(plan, FOLDER, WRAPPER, ["t"]).argv
    assert argv[1:5] == ("--map-by", "core", "--bind-to", "core")
    assert "--oversubscribe" not in argv


@pytest.mark.parametrize(
    ("words", "notes"),
    [
        ([], 1),
        (["--allow-run-as-root=yes"], 0),
        (["--mpi-global-args=--allow-run-as-root"], 0),
    ],
)
def test_root_may_launch_and_is_warned(
    environ: dict[str, str], words: list[str], notes: int
) -> None:
    plan = make_plan(parse([*LINE, *words, "t"]), {})
    command = Mpirun(environ, uid=0).command(plan, FOLDER, WRAPPER, ["t"])
    assert command.argv.count("--allow-run-as-root") == 1
    assert len(command.notes) == notes


def test_root_may_not_launch_where_the_option_forbids_it(environ: dict[str, str]) -> None:
    plan = make_plan(parse([*LINE, "--allow-run-as-root=no", "t"]), {})
    with pytest.raises(InvalidRequest, match="--allow-run-as-root=yes"):
        Mpirun(environ, uid=0).command(plan, FOLDER, WRAPPER, ["t"])


def test_a_missing_mpirun_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    plan = make_plan(parse([*LINE, "t"]), {})
    with pytest.raises(NotFound, match="there is no mpirun"):
        Mpirun({"PATH": str(tmp_path)}).command(plan, FOLDER, WRAPPER, ["t"])


@pytest.mark.parametrize(
    ("environ", "words", "wanted"),
    [
        ({}, "", "^ofi"),
        ({"OMPI_MCA_btl": "tcp,self"}, "", None),
        ({}, "--mpi-global-args=--mca btl tcp,self", None),
        ({}, "--mpi-local-args=-x OMPI_MCA_btl=self", None),
        ({"HOME": "."}, "", None),
        ({"HOME": "/nowhere"}, "", "^ofi"),
    ],
)
def test_mpi_starts_without_the_transport_that_sleeps(
    environ: dict[str, str],
    tmp_path: Path,
    words: str,
    wanted: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """btl/ofi sleeps a second in MPI_Init. The user's own choice of transports overrides
    poprun's.
    """
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".openmpi").mkdir()
    (tmp_path / ".openmpi" / "mca-params.conf").write_text("# mine\nbtl = tcp,self\n")
    path = tmp_path / "mpirun"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    plan = make_plan(parse([*LINE, *([words] if words else []), "t"]), environ)
    command = Mpirun({"PATH": str(tmp_path), **environ}).command(plan, FOLDER, WRAPPER, ["t"])
    assert command.environment.get("OMPI_MCA_btl") == wanted
