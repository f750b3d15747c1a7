"""Jobs with a launcher: the content of their pods, and how the launcher finds its workers."""

from __future__ import annotations

import base64
import errno
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from podwright.errors import AlreadyExists, NotFound, Unavailable, WrongState
from podwright.guests.kubernetes import PodOptions, prove, read_pod, write_files, write_worker_files
from podwright.guests.kubernetes.pods import _worker_files
from podwright.guests.kubernetes.pods._pod_preparation import main as prepare
from podwright.wire import ReadyState
from tests.certificates import JOB_KEYS
from tests.guests.kubernetes.conftest import World

LAUNCHER = {"command": ["poprun", "--num-instances=2", "python3", "train.py"]}


def spec(container: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A job of one instance with two workers."""
    first = {"name": "main", "image": "busybox"} | (container or {})
    template = {"spec": {"containers": [first]}}
    return {
        "ipusPerJobInstance": "4",
        "jobInstances": 1,
        "workersPerJobInstance": "2",
        "workers": {"template": template},
        "launcher": LAUNCHER,
    } | more


@pytest.fixture
async def equipped(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """An operator with the name of its image. The operator's own machine has no openssl."""
    keys = {path.name: path.read_bytes() for path in JOB_KEYS.iterdir()}
    monkeypatch.setattr("podwright.guests.kubernetes.job._job_secret.make_job_keys", lambda _: keys)
    made = World()
    made.start(PodOptions(host_network=False, image="podwright:1"))
    yield made
    await made.kill()


def first(world: World, name: str) -> dict[str, Any]:
    """Return the first container of a pod."""
    found: dict[str, Any] = world.kube.objects["Pod", "team", name]["spec"]["containers"][0]
    return found


def said(container: dict[str, Any]) -> dict[str, str]:
    """Return its environment."""
    return {one["name"]: one["value"] for one in container["env"]}


async def test_the_launcher_knows_its_workers_and_their_keys(equipped: World) -> None:
    uid = equipped.kube.create(spec())
    await equipped.pods("job-worker-0", "job-worker-1")
    assert first(equipped, "job-worker-1")["command"] == ["/podwright/bin/worker"]
    assert said(first(equipped, "job-worker-1"))["PODWRIGHT_JOB_WORKER"] == "job-worker-1"
    for name in ("job-worker-1", "job-worker-0"):
        equipped.kube.run(name)
    await equipped.pods("job-launcher", "job-worker-0", "job-worker-1")
    launcher = first(equipped, "job-launcher")
    (prepares,) = equipped.kube.objects["Pod", "team", "job-launcher"]["spec"]["initContainers"]
    assert said(prepares)["PODWRIGHT_MPI_HOSTS"] == "job-worker-0 slots=1\njob-worker-1 slots=1\n"
    assert launcher["command"] == ["/podwright/bin/launcher", *LAUNCHER["command"]]
    assert said(launcher)["PODWRIGHT_JOB_WORKERS"] == "job-worker-0=10.0.0.1 job-worker-1=10.0.0.1"
    secret = equipped.kube.objects["Secret", "team", f"podwright-{uid}"]
    assert secret["metadata"]["ownerReferences"][0]["uid"] == uid
    assert sorted(secret["data"]) == ["launcher.crt", "launcher.key", "worker.crt", "worker.key"]
    assert base64.b64decode(secret["data"]["worker.crt"]).startswith(b"-----BEGIN CERTIFICATE")
    for name, other in (("job-launcher", "worker"), ("job-worker-0", "launcher")):
        volumes = equipped.kube.objects["Pod", "team", name]["spec"]["volumes"]
        (keys,) = [one["secret"] for one in volumes if "secret" in one]
        assert f"{other}.key" not in [item["key"] for item in keys["items"]]
    assert len([one for one in equipped.kube.writes if "secret" in one]) == 1


async def test_no_pod_of_a_job_gets_a_right(equipped: World) -> None:
    equipped.kube.create(spec())
    await equipped.pods("job-worker-0", "job-worker-1")
    for name in ("job-worker-1", "job-worker-0"):
        equipped.kube.run(name)
    await equipped.pods("job-launcher", "job-worker-0", "job-worker-1")
    pod = equipped.kube.objects["Pod", "team", "job-launcher"]["spec"]
    assert not {"serviceAccountName", "automountServiceAccountToken"} & set(pod)
    assert {key[0] for key in equipped.kube.objects} == {"IPUJob", "Pod", "Secret"}


async def test_a_workers_own_command_stays(equipped: World) -> None:
    equipped.kube.create(spec({"command": ["sh", "-c"], "args": ["serve"]}), "a")
    equipped.kube.create(spec({"args": ["serve"]}), "b")
    await equipped.pods("a-worker-0", "a-worker-1", "b-worker-0", "b-worker-1")
    assert first(equipped, "a-worker-0")["command"] == [
        *("/podwright/bin/worker", "sh", "-c", "serve"),
    ]
    assert "args" not in first(equipped, "a-worker-0")
    unknown = first(equipped, "b-worker-0")
    assert ("command" in unknown, unknown["args"]) == (False, ["serve"])


async def test_a_pod_that_could_not_be_prepared_is_no_failure_of_its_program(
    equipped: World,
) -> None:
    policy = {"type": "ExitCode", "exitCodes": "7"}
    equipped.kube.create(spec(launcher=None, restartPolicy=policy))
    await equipped.pods("job-worker-0", "job-worker-1")
    (prepares,) = equipped.kube.objects["Pod", "team", "job-worker-0"]["spec"]["initContainers"]
    assert prepares["command"] == ["/podwright/bin/prepare"]  # it proves, and copies nothing
    pod = equipped.kube.objects["Pod", "team", "job-worker-0"]
    ended = {"exitCode": 1, "message": "there is no partition p"}
    one = {"name": prepares["name"], "state": {"terminated": ended}}
    pod["status"] = {"phase": "Failed", "initContainerStatuses": [one]}
    view = read_pod(pod)
    assert (view.code, view.note) == (None, "there is no partition p")
    equipped.kube.node("node0")  # somebody looks
    jobs = equipped.operator.jobs  # type: ignore[union-attr]
    jobs.poke(next(iter(jobs._keys.values())))
    await equipped.until(lambda: equipped.status().get("restartCount") == 1, "started anew")


class Asked:
    """A client of a controller that has one partition."""

    def __init__(self, state: ReadyState | None) -> None:
        self.state = state

    def get_partition(self, name: str) -> Any:
        """Return the partition, as far as it is asked for."""
        if self.state is None:
            raise NotFound(f"there is no partition {name}")
        return type("Info", (), {"ready_state": self.state, "errors": []})


def test_a_worker_begins_only_with_a_ready_partition() -> None:
    prove(Asked(ReadyState.ACTIVE), "p")  # type: ignore[arg-type]
    with pytest.raises(NotFound):
        prove(Asked(None), "p")  # type: ignore[arg-type]
    with pytest.raises(WrongState, match="partition p is not ready"):
        prove(Asked(ReadyState.ERROR), "p")  # type: ignore[arg-type]


def test_an_account_that_does_not_own_the_volume_fills_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, volume = tmp_path / "place", tmp_path / "volume"
    (place / "bin").mkdir(parents=True)
    (place / "bin" / "poprun").write_text("#!/bin/sh\n")
    volume.mkdir()
    copies = shutil.copystat

    def copystat(source: Any, target: Any, **more: Any) -> None:
        if Path(target) == volume:
            raise PermissionError(1, "Operation not permitted")
        copies(source, target, **more)

    monkeypatch.setattr("shutil.copystat", copystat)
    monkeypatch.setattr("podwright.guests.kubernetes.pods._pod_preparation.PLACE", str(place))
    monkeypatch.setenv("PODWRIGHT_MPI_HOSTS", "w-0 slots=1\n")
    monkeypatch.delenv("IPUOF_VIPU_API_HOST", raising=False)
    assert prepare([str(volume)]) == 0
    assert (volume / "bin" / "poprun").exists()
    assert (volume / "hosts").read_text() == "w-0 slots=1\n"


def test_worker_files_need_nothing_of_the_image(tmp_path: Path) -> None:
    files = tmp_path / "files"
    write_worker_files(files, str(files))
    foreign = {"PATH": "", "PYTHONHOME": "/no", "PYTHONPATH": "/no", "LD_LIBRARY_PATH": "/no"}
    for words, said in (
        (["bin/poprun", "--version"], "poprun "),
        (["bin/launcher", "poprun", "--version"], "poprun "),
        (["libexec/python", "-c", "import sys; print(sys.prefix, sys.executable)"], f"{files} "),
        (["libexec/python", "-c", "import podwright as p; print(p.__file__)"], f"{files}/lib/"),
    ):
        argv = [f"{files}/{words[0]}", *words[1:]]
        done = subprocess.run(argv, env=foreign, cwd="/", capture_output=True, text=True)
        assert done.stdout.startswith(said), done.stderr
    argv = [f"{files}/bin/launcher", "/usr/bin/env"]
    done = subprocess.run(
        argv, env={"PRTE_MCA_plm_ssh_agent": "mine"}, capture_output=True, text=True
    )
    settings = dict(line.partition("=")[::2] for line in done.stdout.splitlines())
    assert settings["OMPI_MCA_plm_rsh_agent"] == f"{files}/bin/mpi-agent"
    assert settings["PRTE_MCA_prte_default_hostfile"] == f"{files}/hosts"
    assert settings["PRTE_MCA_plm_ssh_agent"] == "mine"
    with pytest.raises(AlreadyExists, match="is not empty"):
        write_worker_files(files)


def test_worker_files_that_cannot_be_written_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.touch()
    for folder in (file, file / "below"):
        with pytest.raises(Unavailable, match=f"{folder} cannot be written: Not a directory"):
            write_worker_files(folder)
        with pytest.raises(Unavailable, match=f"{folder} cannot be written: Not a directory"):
            write_files(folder, {"a/b": "c"})

    def full_disk(library: Path) -> None:
        library.mkdir()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(_worker_files, "_copy_library", full_disk)
    empty = tmp_path / "empty"
    empty.mkdir()
    for folder in (empty, tmp_path / "missing"):
        with pytest.raises(Unavailable, match="No space left"):
            write_worker_files(folder)
    assert sorted(tmp_path.iterdir()) == [empty, file]
    assert not list(empty.iterdir())
