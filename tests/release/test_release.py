"""A release: the same bytes twice, all of the product and nothing else, and said what is in it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.release import ROOT, SUMS, build, commit_time, export, release, unpack
from tools.sbom import installed
from tools.wheels import (
    MACHINES,
    PYTHONS,
    RECORD,
    REQUIREMENTS,
    Pin,
    read_lock,
    read_record,
    wheels_for,
    without_wheel,
)

import podwright
from podwright.agents._protocol_versions import OLDEST_PEER, PROTOCOL_VERSION
from podwright.cli.shared import _run_to_exit_code
from podwright.errors import PodwrightError
from podwright.store._format import FORMAT, OLDEST_READER

LOCKS = ("demo", "dev", "release")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("release")
    release(ROOT, folder)
    return folder


def test_a_release_has_the_same_bytes_twice(made: Path, tmp_path: Path) -> None:
    """In another folder, under another umask, at another time of day and in another zone."""
    code = (
        "import os, sys; from pathlib import Path; os.umask(0o077)\n"
        "from tools.release import ROOT, release; release(ROOT, Path(sys.argv[1]))"
    )
    subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "again")],
        cwd=ROOT,
        env={**os.environ, "TZ": "Pacific/Auckland", "LC_ALL": "C", "PYTHONHASHSEED": "7"},
        check=True,
    )
    assert _sums(made) == _sums(tmp_path / "again")


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def _sums(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir()}


def test_checksums_are_those_of_the_files(made: Path) -> None:
    there = _sums(made)
    said = {name: digest for digest, name in map(str.split, _lines(made / SUMS))}
    del there[SUMS]
    assert said == there
    version = podwright.__version__
    assert sorted(there) == [
        f"podwright-{version}-licences.txt",
        f"podwright-{version}-py3-none-any.whl",
        f"podwright-{version}.cdx.json",
        f"podwright-{version}.tar.gz",
    ]


def test_the_wheel_has_all_of_the_product(made: Path) -> None:
    (wheel,) = made.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    tracked = subprocess.run(
        ["git", "-C", str(ROOT), "ls-tree", "-r", "--name-only", "HEAD", "src"],
        capture_output=True,
        text=True,
        check=True,
    )
    sources = {name.removeprefix("src/") for name in tracked.stdout.splitlines()}
    info = f"podwright-{podwright.__version__}.dist-info"
    written = {"podwright/_commit.txt"}  # by the release, for `podwright version`
    assert {name for name in names if not name.startswith(info)} == sources | written
    assert f"{info}/licenses/LICENSE" in names


def test_the_source_archive_makes_the_same_wheel(made: Path, tmp_path: Path) -> None:
    (archive,) = made.glob("*.tar.gz")
    unpack(archive.read_bytes(), tmp_path)
    (folder,) = tmp_path.iterdir()
    build(folder, tmp_path / "dist", commit_time(ROOT, "HEAD"))
    (ours,), (theirs,) = (tmp_path / "dist").glob("*.whl"), made.glob("*.whl")
    assert ours.read_bytes() == theirs.read_bytes()


def test_only_what_is_committed_is_released(tmp_path: Path) -> None:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for name in ("kept", "left"):
        (tmp_path / name).write_text(name)
    for words in (["init", "-q"], ["add", "kept"], ["commit", "-q", "-m", "one"]):
        subprocess.run([*git, *words], check=True)
    (tmp_path / "kept").write_text("changed since")
    source = export(tmp_path, tmp_path / "out")
    assert {path.name: path.read_text() for path in source.iterdir()} == {"kept": "kept"}


def test_a_release_goes_into_an_empty_folder_alone(made: Path) -> None:
    with pytest.raises(SystemExit, match="is not empty"):
        release(ROOT, made)


def test_the_bill_of_materials_names_every_locked_package(made: Path) -> None:
    (path,) = made.glob("*.cdx.json")
    bom = json.loads(path.read_text())
    assert (bom["bomFormat"], bom["specVersion"]) == ("CycloneDX", "1.6")
    assert bom["metadata"]["component"]["purl"] == f"pkg:pypi/podwright@{podwright.__version__}"
    pins = [pin for pin, _ in installed(read_lock(REQUIREMENTS / "release.lock"))]
    assert {(c["name"], c["version"]) for c in bom["components"]} == {
        (pin.name, pin.version) for pin in pins
    }
    assert len(pins) > 20
    nameless = [c["name"] for c in bom["components"] if not c.get("licenses")]
    assert nameless == []


def test_every_component_has_the_hashes_of_its_wheels(made: Path) -> None:
    (path,) = made.glob("*.cdx.json")
    components = json.loads(path.read_text())["components"]
    pins = {pin.name: pin for pin, _ in installed(read_lock(REQUIREMENTS / "release.lock"))}
    names = read_record()
    for component in components:
        hashes = component.get("hashes", [])
        assert hashes, component["name"]
        assert {each["alg"] for each in hashes} == {"SHA-256"}
        digests = {each["content"] for each in hashes}
        assert digests <= pins[component["name"]].hashes
        assert all(names[digest].endswith(".whl") for digest in digests)


def test_hashes_are_those_of_one_python_on_every_machine() -> None:
    pins = {pin.name: pin for pin in read_lock(REQUIREMENTS / "release.lock")}
    names = read_record()
    wheels = [names[digest] for digest in wheels_for(pins["grpcio"], names, (3, 11))]
    assert all("-cp311-cp311-" in name for name in wheels)
    assert {machine for machine in MACHINES if any(machine in name for name in wheels)} == {
        *MACHINES
    }


def test_the_licences_have_their_words(made: Path) -> None:
    (path,) = made.glob("*-licences.txt")
    text = path.read_text()
    for pin, _ in installed(read_lock(REQUIREMENTS / "release.lock")):
        assert f"\n{pin.name} {pin.version}: " in text
    assert "Redistribution and use in source and binary forms" in text  # numpy's and others'
    assert "GNU LESSER GENERAL PUBLIC LICENSE" in text  # ClusterShell's, psycopg's


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("lock", LOCKS)
def test_every_locked_dependency_has_a_wheel(lock: str, machine: str) -> None:
    """For each Python and each machine: GB200 hosts are aarch64."""
    pins, names = read_lock(REQUIREMENTS / f"{lock}.lock"), read_record()
    for python in PYTHONS:
        assert without_wheel(pins, names, machine, python) == [], python


def test_a_dependency_without_a_wheel_is_found() -> None:
    pins, names = read_lock(REQUIREMENTS / "release.lock"), read_record()
    less = {digest: name for digest, name in names.items() if "aarch64" not in name}
    assert any(p.startswith("grpcio ") for p in without_wheel(pins, less, "aarch64", (3, 11)))
    assert without_wheel(pins, less, "x86_64", (3, 11)) == []


@pytest.mark.parametrize("lock", LOCKS)
def test_the_record_is_of_these_locks(lock: str) -> None:
    """`make lock` writes them together: each package of the lock has files in the record."""
    names = read_record()
    pins: list[Pin] = read_lock(REQUIREMENTS / f"{lock}.lock")
    assert [pin.name for pin in pins if not pin.hashes & names.keys()] == []
    assert "://" not in RECORD.read_text()


def test_locks_agree_with_each_other() -> None:
    """What is tested is what is released."""
    dev = {(pin.name, pin.version): pin.hashes for pin in read_lock(REQUIREMENTS / "dev.lock")}
    for lock in ("demo", "release"):
        for pin in read_lock(REQUIREMENTS / f"{lock}.lock"):
            assert dev[pin.name, pin.version] == pin.hashes


def test_one_line_names_the_project_pages(made: Path) -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    repository = settings["tool"]["hatch"]["metadata"]["hooks"]["custom"]["repository"]
    (wheel,) = made.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        info = f"podwright-{podwright.__version__}.dist-info/METADATA"
        lines = archive.read(info).decode().splitlines()
    urls = dict(
        line.removeprefix("Project-URL: ").split(", ") for line in lines if "-URL: " in line
    )
    assert urls.keys() == {"Homepage", "Documentation", "Source", "Issues", "Changelog", "Security"}
    assert all(url.startswith(repository) for url in urls.values())


def test_there_is_one_version() -> None:
    """What the package says is what the wheel, the commands and the changelog say."""
    assert f"## {podwright.__version__}" in (ROOT / "CHANGELOG.md").read_text()
    said = subprocess.run(
        [
            "git",
            "-C",
            str(ROOT),
            "grep",
            "-lF",
            f'"{podwright.__version__}"',
            "--",
            "src",
            "*.toml",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.split() == ["src/podwright/_version.py"]


def test_the_pages_name_the_files_of_this_release() -> None:
    version = podwright.__version__
    pages = [
        ROOT / "README.md",
        *(ROOT / "docs").glob("[a-z]*.md"),
        *(ROOT / "docs").glob("[a-z]*/*.md"),
    ]
    named = {
        (page.name, found)
        for page in pages
        for found in re.findall(
            r"podwright(?:-slurm)?[-_](\d[\w.]*?)(?:-1~|-py3|\.tar|\.cdx|-lic)", page.read_text()
        )
    }
    assert {page for page, _ in named} >= {"README.md", "install.md", "laptop.md", "releases.md"}
    assert {found for _, found in named} == {version}


def test_no_page_and_no_message_says_that_an_index_has_podwright() -> None:
    """`pip install podwright` finds nothing of ours; a file, an address or a checkout is named."""
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", *(ROOT / "src").rglob("*.py")]
    said = [
        (page.name, line)
        for page in pages
        if "_build" not in page.parts
        for line in page.read_text().splitlines()
        if re.search(r"pip install '?podwright(\[\w+\])?'?(\s|$|`|\")", line)
        and "finds nothing" not in line
    ]
    assert said == []


def test_what_is_frozen_is_what_the_code_has() -> None:
    page = (ROOT / "docs" / "stability.md").read_text()
    assert f"format {FORMAT}, readable from format {OLDEST_READER} on" in page
    assert f"protocol {PROTOCOL_VERSION}, with peers of protocol {OLDEST_PEER} and newer" in page
    codes = {
        int(code) for row in re.findall(r"^\| ([\d, ]+) \|", page, re.M) for code in row.split(", ")
    }
    kinds = every_error(PodwrightError)
    ours = {kind.exit_code for kind in kinds if kind.__module__ == "podwright.errors"}
    named = {value for name, value in vars(_run_to_exit_code).items() if name.startswith("EXIT_")}
    assert ours | named | {0, 2, 3} == codes


def every_error(kind: type[PodwrightError]) -> Iterator[type[PodwrightError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from every_error(child)
