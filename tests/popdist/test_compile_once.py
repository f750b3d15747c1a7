"""One builds, the others load; whoever builds may die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import popdist
from popdist import BadEnvironment, compile_once

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("POPDIST_EXECUTABLE_CACHE_PATH", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Builder:
    """Counts how often it builds."""

    def __init__(self) -> None:
        self.built = 0

    def __call__(self) -> dict[str, int]:
        self.built += 1
        return {"built": self.built}


def test_without_a_folder_it_is_built_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = Builder()
    for text in (None, ""):
        if text is not None:
            monkeypatch.setenv("POPDIST_EXECUTABLE_CACHE_PATH", text)
        assert [compile_once("k", builder)["built"] for _ in range(2)]
    assert builder.built == 4


def test_it_is_built_once_for_each_key(folder: Path) -> None:
    builder = Builder()
    for _ in range(3):
        assert compile_once("one", builder) == {"built": 1}
        assert compile_once("two \udcff/../..", builder) == {"built": 2}
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.iterdir())
    assert compile_once("b", lambda: b"raw", dumps=bytes, loads=bytes) == b"raw"
    assert compile_once("b", lambda: b"no", dumps=bytes, loads=bytes) == b"raw"


def test_a_builder_that_raises_leaves_it_to_the_next(folder: Path) -> None:
    def broken() -> int:
        raise ValueError("no")

    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            compile_once("k", broken)
    assert compile_once("k", lambda: 3) == 3


def test_what_is_broken_or_not_ours_is_built_again(folder: Path) -> None:
    builder = Builder()
    compile_once("k", builder)
    (path,) = [path for path in folder.iterdir() if path.suffix == ""]
    path.write_bytes(b"garbage")
    assert compile_once("k", builder) == {"built": 2}
    path.chmod(0o666)  # anybody may have written it
    assert compile_once("k", builder) == {"built": 3}
    path.unlink()
    path.symlink_to("/etc/hostname")
    assert compile_once("k", builder) == {"built": 4}


def test_no_room_or_no_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_once("k", Builder())
    name = next(path for path in folder.iterdir() if path.suffix == "").name
    (folder / name).unlink()
    (folder / f"{name}.part").mkdir()
    assert compile_once("k", lambda: 5) == 5
    monkeypatch.setenv("POPDIST_EXECUTABLE_CACHE_PATH", f"{folder}/{name}.lock/x")
    with pytest.raises(BadEnvironment, match="POPDIST_EXECUTABLE_CACHE_PATH"):
        compile_once("k", lambda: 5)


def test_a_killed_builder_is_followed_by_another(folder: Path) -> None:
    """Of three that want it at once, the first is killed while it builds."""
    program = (
        "import os, signal, sys, time, popdist\n"
        "def build():\n"
        "    print('building', flush=True)\n"
        "    if sys.argv[1] == 'dies': time.sleep(60)\n"
        "    return os.getpid()\n"
        "print(popdist.compile_once('k', build), flush=True)\n"
    )

    def start(how: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", program, how], stdout=subprocess.PIPE, text=True
        )

    first = start("dies")
    assert first.stdout
    assert first.stdout.readline() == "building\n"
    others = [start("lives"), start("lives")]
    first.send_signal(signal.SIGKILL)
    first.communicate(timeout=300)
    said = [process.communicate(timeout=300)[0].splitlines() for process in others]
    assert sorted(map(len, said)) == [1, 2], said
    assert said[0][-1] == said[1][-1]


def test_the_example_compiles_in_one_instance(folder: Path) -> None:
    example = REPOSITORY / "examples" / "compile_once.py"
    said = [
        subprocess.run([sys.executable, example], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert "compiled in" in said[0]
    assert "loaded in" in said[1]
    assert said[0].split("result")[1] == said[1].split("result")[1]


REPORT = "POPDIST_AUTOREPORT_DIRECTORY"
OPTIONS = "POPLAR_ENGINE_OPTIONS"
ON = {"autoReport.directory": "/d/1", "autoReport.all": "true"}


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (None, ON),
        ("", ON),
        ("{}", ON),
        ('{"allowOutOfMemory":"true"}', {"allowOutOfMemory": "true", **ON}),
        ('{"autoReport.all":"false"}', {**ON, "autoReport.all": "false"}),
        (
            '{"autoReport.outputGraphProfile":"true"}',
            {"autoReport.outputGraphProfile": "true", "autoReport.directory": "/d/1"},
        ),
    ],
)
def test_profiles(
    monkeypatch: pytest.MonkeyPatch, given: str | None, wanted: dict[str, str]
) -> None:
    """PopRun guide 2.7: a folder for each instance; what the user says of profiling stands."""
    from popdist._profiling import set_profiling

    for name, value in (("TOTAL", "4"), ("LOCAL", "2")):
        monkeypatch.setenv(f"POPDIST_NUM_{name}_REPLICAS", value)
    monkeypatch.setenv("POPDIST_UNIFORM_REPLICAS_PER_INSTANCE", "1")
    monkeypatch.setenv("POPDIST_REPLICA_INDEX_OFFSET", "2")
    assert popdist.setEngineOptions({"a": "b"}) == {"a": "b"}
    if given is not None:
        monkeypatch.setenv(OPTIONS, given)
    set_profiling()
    assert os.environ.get(OPTIONS) == given
    monkeypatch.setenv(REPORT, "/d")
    set_profiling()
    set_profiling()
    assert json.loads(os.environ[OPTIONS]) == wanted
    monkeypatch.setenv(OPTIONS, given or "{}")
    own = popdist.setEngineOptions({"a": "b"})
    assert own["a"] == "b"
    assert own["autoReport.directory"] == "/d/1"
    assert ("autoReport.all" in own) == ("autoReport" not in (given or ""))


@pytest.mark.parametrize("text", ["{", "[]", "{autoReport.all:true}"])
def test_engine_options_that_are_no_json(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(OPTIONS, text)
    assert popdist.setEngineOptions() == {}
    monkeypatch.setenv(REPORT, "/d")
    with pytest.raises(BadEnvironment, match="POPLAR_ENGINE_OPTIONS"):
        popdist.setEngineOptions()
