"""A change of a site's files: it is planned, shown as a diff, and carried out. Each file changes as
a whole or not at all.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import secrets
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from podwright.errors import Unavailable
from podwright.ground.durable_files import write_whole
from podwright.ground.plural import counted
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


def as_diff(file_changes: FileChanges) -> str:
    """Return what would change, as a diff, with words for links and moves."""
    diff_lines = [f"move {old_path} to {new_path}\n" for old_path, new_path in file_changes.moves]
    for folder, uid in file_changes.folders.items():
        if not folder.exists():
            diff_lines.append(f"make {folder} for user {uid}\n")
    for path, uid in file_changes.secrets.items():
        if not path.exists():
            diff_lines.append(f"make {path}, a key for user {uid}\n")
    moved_paths = {old_path for old_path, _ in file_changes.moves}
    for path, target in file_changes.links.items():
        if not (path.is_symlink() and path.readlink() == target):
            diff_lines.append(f"link {path} -> {target}\n")
    for path, new_text in file_changes.texts.items():
        if path.is_symlink():
            diff_lines.append(f"remove {path}\n")
            continue
        file_exists = path.exists() and path not in moved_paths
        old_text = read(path) if file_exists else ""
        diff_names = (
            str(path) if file_exists else "/dev/null",
            "/dev/null" if new_text is None else str(path),
        )
        unified_lines = difflib.unified_diff(
            old_text.splitlines(keepends=True),
            (new_text or "").splitlines(keepends=True),
            *diff_names,
        )
        diff_lines += [line if line.endswith("\n") else line + "\n" for line in unified_lines]
    return "".join(diff_lines).encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def summary(file_changes: FileChanges) -> str:
    """Return what would change, in a line for each thing. For a file it says how many lines come
    and go.
    """
    summary_lines = [line + "\n" for line in as_diff(replace(file_changes, texts={})).splitlines()]
    for path in file_changes.texts:
        one_file_change = FileChanges(
            texts={path: file_changes.texts[path]}, moves=file_changes.moves
        )
        diff_lines = [
            line for line in as_diff(one_file_change).splitlines() if not line.startswith("move ")
        ]
        if not diff_lines:
            continue
        if diff_lines[0].startswith("remove "):
            summary_lines.append(diff_lines[0] + "\n")
            continue
        added_lines = sum(line.startswith("+") for line in diff_lines[2:])
        removed_lines = sum(line.startswith("-") for line in diff_lines[2:])
        is_removal = file_changes.texts[path] is None
        verb = (
            "remove"
            if is_removal
            else "make"
            if diff_lines[0].startswith("--- /dev/null")
            else "change"
        )
        count_texts = [
            f"{counted(count, 'line', ('is', 'are'))} {change}"
            for count, change in ((added_lines, "added"), (removed_lines, "removed"))
            if count
        ]
        summary_lines.append(f"{verb} {path}: {', '.join(count_texts)}\n")
    return "".join(summary_lines)


def carry_out(file_changes: FileChanges) -> None:
    """Carry out the changes, in an order in which the files that Slurm reads come last.

    Raises Unavailable, which names what could not be written.
    """
    try:
        for folder, uid in file_changes.folders.items():
            _make_folder(folder, uid)
        for path, uid in file_changes.secrets.items():
            _make_key_file(path, uid)
        for path, target in file_changes.links.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
            path.symlink_to(target)
        for old_path, target in file_changes.moves:
            previous_second = _modified_second(target)
            os.replace(old_path, target)
            _touch_later_second(target, previous_second)
        for path, text in file_changes.texts.items():
            if text is None:
                path.unlink(missing_ok=True)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                _replace_file(path, text)
    except OSError as error:
        raise Unavailable(
            f"{error.filename}: {error.strerror}",
            operation="write the configuration",
            would_work="run it as root; --undo takes back what was written",
        ) from None


def _make_folder(folder: Path, owner_uid: int) -> None:
    """Make a folder of this user's, if it is missing and we are root. The unit makes it
    otherwise.
    """
    if folder.exists() or os.geteuid():  # the unit makes it for other users
        return
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    os.chown(folder, owner_uid, -1)


def _make_key_file(key_path: Path, owner_uid: int) -> None:
    """Make a key of this user's, if it is missing."""
    key_path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        descriptor = os.open(key_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as key_file:
            if os.geteuid() == 0:
                os.fchown(descriptor, owner_uid, -1)
            key_file.write(secrets.token_hex(32) + "\n")


def _modified_second(path: Path) -> int:
    """Return the second in which a file was last written, or -1 if there is none."""
    return int(path.stat().st_mtime) if path.exists() else -1


def _touch_later_second(path: Path | str, earlier_second: int) -> None:
    """Give a file a time in a later second.

    slurmctld reads a script again only if its time, in whole seconds, is later than that of the
    script that it read last.
    """
    if earlier_second >= 0 and os.stat(path).st_mtime < earlier_second + 1:
        later_time = max(time.time(), earlier_second + 1)
        os.utime(path, (later_time, later_time))


def _replace_file(path: Path, new_text: str) -> None:
    new_bytes = new_text.encode("utf-8", "surrogateescape")
    if path.exists() and path.read_bytes() == new_bytes:
        return
    previous_second = _modified_second(path)
    new_mode = 0o755 if new_bytes.startswith(b"#!") else 0o644
    write_whole(path, new_bytes, None if path.exists() else new_mode)
    _touch_later_second(path, previous_second)
