"""Command lines in files: `--export-config` writes one, `--import-config` reads it.

The format is our choice: TOML, with the program and its arguments as one array, and each option
under its own name. Only values that differ from the defaults are written, and none that belongs to
one machine. The file may name hosts and servers, so it is private.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from podwright.errors import InvalidRequest
from podwright.launcher.options._option_table import BY_NAME, OPTIONS, Option

if TYPE_CHECKING:
    from podwright.launcher.options._options import Options

#: Options that concern the launch that has them, and not the launch that the file describes.
_PASSING = (
    *("--import-config", "--export-config", "--overwrite-config"),
    *("--dry-run", "--help", "--version", "--version-format"),
)
_LARGEST = 1 << 20  # bytes; a longest possible command line is 128 KiB a word

_ESCAPES = {number: f"\\u{number:04x}" for number in (*range(32), 127)}
_ESCAPES |= {ord('"'): '\\"', ord("\\"): "\\\\"}

Stored = list[tuple[Option, str]]


def read_config(path: str) -> tuple[Stored, list[str]]:
    """Return the options in a file, as if they were typed, and the program.

    Raises InvalidRequest, in one line.
    """
    try:
        document = _read(path)
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else " ".join(str(error).split())
        raise InvalidRequest(f"--import-config: {path}: {reason or type(error).__name__}") from None
    program = document.pop("program", [])
    if not isinstance(program, list) or not all(_fit(word) for word in program):
        raise _bad(path, "program is not an array of strings")
    options = document.pop("options", {})
    if document or not isinstance(options, dict):
        raise _bad(
            path, f"it holds {next(iter(document), 'options')!r} beside program and [options]"
        )
    stored: Stored = []
    for name, value in options.items():
        option = BY_NAME.get(f"--{name}")
        if option is None or option.name in _PASSING:
            raise _bad(path, f"there is no option {name!r} to store")
        values = value if isinstance(value, list) and option.adds else [value]
        for entry in values:
            stored.append((option, _text(path, name, entry)))
    return stored, program


def _read(path: str) -> dict[str, Any]:
    import tomllib  # imported only with --import-config

    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError("this is not an ordinary file")
        content = file.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise ValueError("this is too large for a configuration file")
    return tomllib.loads(content.decode())


def _text(path: str, name: str, value: Any) -> str:
    """Return a value as a user would type it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return str(value)
    if _fit(value):
        return str(value)
    raise _bad(path, f"{name} has a value that no option takes")


def _fit(value: Any) -> bool:
    return isinstance(value, str) and "\0" not in value


def _bad(path: str, reason: str) -> InvalidRequest:
    return InvalidRequest(f"--import-config: {path}: {reason}")


def config_text(options: Options) -> str:
    """Return options and program as the text of such a file. Raises InvalidRequest for invalid
    text.
    """
    defaults = type(options)()
    lines = ["# A launch of poprun; start it again with: poprun --import-config FILE"]
    lines += [f"program = {_array(options.program)}", "", "[options]"]
    for option in OPTIONS:
        value = getattr(options, option.field, None)
        if option.name in _PASSING or value == getattr(defaults, option.field):
            continue
        lines.append(f"{option.name.removeprefix('--')} = {_value(value)}")
    text = "\n".join([*lines, ""])
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(
            "--export-config: the command line holds bytes that are not text in UTF-8"
        ) from None
    return text


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, tuple):
        return _array(
            entry if isinstance(entry, str) else f"{entry[0]}:{entry[1]}" for entry in value
        )
    return _string(value)


def _array(words: Any) -> str:
    return f"[{', '.join(map(_string, words))}]"


def _string(word: str) -> str:
    """Return a basic string of TOML."""
    return f'"{word.translate(_ESCAPES)}"'


def write_config(options: Options, path: str, overwrite: bool, now: float | None = None) -> str:
    """Write the file, readable only by this user, and return its path. An existing file stays by
    default.

    Raises InvalidRequest if it cannot be written.
    """
    text = config_text(options)
    target = path
    try:
        if not overwrite and os.path.lexists(path):
            stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
            target = f"{path}.{stamp}"
        _write(target, text, overwrite)
    except OSError as error:
        raise InvalidRequest(f"--export-config: {target}: {error.strerror}") from None
    return target


def _write(path: str, text: str, overwrite: bool) -> None:
    draft = f"{path}.{os.urandom(4).hex()}" if overwrite else path
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(handle, "w", encoding="utf-8") as file:
        file.write(text)
    if overwrite:
        os.rename(draft, path)


def given(stored: Stored, typed: Sequence[tuple[Option, str]]) -> Stored:
    """Return the options that count: the typed ones, and the stored ones of the others."""
    names = {option.name for option, _ in typed}
    return [*(pair for pair in stored if pair[0].name not in names), *typed]
