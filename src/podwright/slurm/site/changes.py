"""A change of a site's files: it is planned, shown as a diff, and carried out. Each file changes as
a whole or not at all.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import secrets
import shutil
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from podwright.errors import Unavailable
from podwright.slurm.site.files import read


@dataclass
class FileChanges:
    """The planned changes of a site's files.

    texts: the new text of each file; None: the file is removed. links: the target of each link.
    moves: pairs of old and new path. folders: folders to make where they are missing, each with its
    owner's uid. secrets: files with a random key, made where they are missing and never shown, each
    with its owner's uid.
    """

    texts: dict[Path, str | None] = field(default_factory=dict)
    links: dict[Path, Path] = field(default_factory=dict)
    moves: list[tuple[Path, Path]] = field(default_factory=list)
    folders: dict[Path, int] = field(default_factory=dict)
    secrets: dict[Path, int] = field(default_factory=dict)


def as_diff(plan: FileChanges) -> str:
    """Return what would change, as a diff, with words for links and moves."""
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
        exists = path.exists() and path not in moved
        before = read(path) if exists else ""
        names = (str(path) if exists else "/dev/null", "/dev/null" if text is None else str(path))
        lines = difflib.unified_diff(
            before.splitlines(keepends=True), (text or "").splitlines(keepends=True), *names
        )
        out += [line if line.endswith("\n") else line + "\n" for line in lines]
    return "".join(out).encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def summary(plan: FileChanges) -> str:
    """Return what would change, in a line for each thing. For a file it says how many lines come
    and go.
    """
    out = [line + "\n" for line in as_diff(replace(plan, texts={})).splitlines()]
    for path in plan.texts:
        only = FileChanges(texts={path: plan.texts[path]}, moves=plan.moves)
        diff = [line for line in as_diff(only).splitlines() if not line.startswith("move ")]
        if not diff:
            continue
        if diff[0].startswith("remove "):
            out.append(diff[0] + "\n")
            continue
        more = sum(line.startswith("+") for line in diff[2:])
        less = sum(line.startswith("-") for line in diff[2:])
        removes = plan.texts[path] is None
        verb = "remove" if removes else "make" if diff[0].startswith("--- /dev/null") else "change"
        counts = [f"{more} lines come"] * bool(more) + [f"{less} lines go"] * bool(less)
        out.append(f"{verb} {path}: {', '.join(counts)}\n")
    return "".join(out)


def carry_out(plan: FileChanges) -> None:
    """Carry out the changes, in an order in which the files that Slurm reads come last.

    Raises Unavailable, which names what could not be written.
    """
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
            operation="write the configuration",
            would_work="run it as root; --undo takes back what was written",
        ) from None


def _make(folder: Path, uid: int) -> None:
    """Make a folder of this user's, if it is missing and we are root. The unit makes it
    otherwise.
    """
    if folder.exists() or os.geteuid():  # the unit makes it for other users
        return
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    os.chown(folder, uid, -1)


def _make_key(path: Path, uid: int) -> None:
    """Make a key of this user's, if it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(number, "w") as file:
            if os.geteuid() == 0:
                os.fchown(number, uid, -1)
            file.write(secrets.token_hex(32) + "\n")


def _second(path: Path) -> int:
    """Return the second in which a file was last written, or -1 if there is none."""
    return int(path.stat().st_mtime) if path.exists() else -1


def _in_a_later_second(path: Path | str, than: int) -> None:
    """Give a file a time in a later second.

    slurmctld reads a script again only if its time, in whole seconds, is later than that of the
    script that it read last.
    """
    if than >= 0 and os.stat(path).st_mtime < than + 1:
        later = max(time.time(), than + 1)
        os.utime(path, (later, later))


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
            status = path.stat()
            os.chown(name, status.st_uid, status.st_gid)
            os.utime(name)
            _in_a_later_second(name, int(status.st_mtime))
        else:
            os.chmod(name, 0o755 if data.startswith(b"#!") else 0o644)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
