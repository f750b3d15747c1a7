"""A change of a site's files: planned, shown as a difference, carried out. Each file changes as a
whole or not at all."""

from __future__ import annotations

import contextlib
import difflib
import os
import secrets
import shutil
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from podwright.errors import Unavailable
from podwright.slurm.site.files import read


@dataclass
class FileChanges:
    """Files with what they should hold (None: they go), links, moves (from, to), and folders that
    are made where there are none, each with its owner's uid. secrets: files with a random key, made
    where there are none and never shown, each with its owner's uid."""

    texts: dict[Path, str | None] = field(default_factory=dict)
    links: dict[Path, Path] = field(default_factory=dict)
    moves: list[tuple[Path, Path]] = field(default_factory=list)
    folders: dict[Path, int] = field(default_factory=dict)
    secrets: dict[Path, int] = field(default_factory=dict)


def shown(plan: FileChanges) -> str:
    """What would change, as a diff with words for links and moves."""
    out = [f"move {a} to {b}\n" for a, b in plan.moves]
    for folder, uid in plan.folders.items():
        if not folder.exists():
            out.append(f"make {folder} for user {uid}\n")
    for path, uid in plan.secrets.items():
        if not path.exists():
            out.append(f"make {path}, a key for user {uid}\n")
    moved = {a for a, _ in plan.moves}
    for path, target in plan.links.items():
        if not (path.is_symlink() and path.readlink() == target):
            out.append(f"link {path} -> {target}\n")
    for path, text in plan.texts.items():
        if path.is_symlink():
            out.append(f"remove {path}\n")
            continue
        there = path.exists() and path not in moved
        before = read(path) if there else ""
        names = (str(path) if there else "/dev/null", "/dev/null" if text is None else str(path))
        lines = difflib.unified_diff(
            before.splitlines(keepends=True), (text or "").splitlines(keepends=True), *names
        )
        out += [line if line.endswith("\n") else line + "\n" for line in lines]
    return "".join(out).encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def carry_out(plan: FileChanges) -> None:
    """Carry it out, what Slurm reads last. Raises Unavailable with what could not be written."""
    try:
        for folder, uid in plan.folders.items():
            _make(folder, uid)
        for path, uid in plan.secrets.items():
            _make_key(path, uid)
        for path, target in plan.links.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
            path.symlink_to(target)
        for source, target in plan.moves:
            before = _second(target)
            os.replace(source, target)
            _in_a_later_second(target, before)
        for path, text in plan.texts.items():
            if text is None:
                path.unlink(missing_ok=True)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                _replace(path, text)
    except OSError as error:
        raise Unavailable(
            f"{error.filename}: {error.strerror}",
            asked="write the configuration",
            would_work="run it as root; --undo takes back what was written",
        ) from None


def _make(folder: Path, uid: int) -> None:
    """A folder of this user's, where there is none."""
    if folder.exists() or os.geteuid():  # others' the unit makes
        return
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    os.chown(folder, uid, -1)


def _make_key(path: Path, uid: int) -> None:
    """A key of this user's, where there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(number, "w") as file:
            if os.geteuid() == 0:
                os.fchown(number, uid, -1)
            file.write(secrets.token_hex(32) + "\n")


def _second(path: Path) -> int:
    """In which it was last written; -1: there is none."""
    return int(path.stat().st_mtime) if path.exists() else -1


def _in_a_later_second(path: Path | str, than: int) -> None:
    """slurmctld reads a script again where its time, in whole seconds, is after the last one's."""
    if than >= 0 and os.stat(path).st_mtime < than + 1:
        at = max(time.time(), than + 1)
        os.utime(path, (at, at))


def _replace(path: Path, text: str) -> None:
    data = text.encode("utf-8", "surrogateescape")
    if path.exists() and path.read_bytes() == data:
        return
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(number, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            shutil.copystat(path, name)
            there = path.stat()
            os.chown(name, there.st_uid, there.st_gid)
            os.utime(name)
            _in_a_later_second(name, int(there.st_mtime))
        else:
            os.chmod(name, 0o755 if data.startswith(b"#!") else 0o644)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
