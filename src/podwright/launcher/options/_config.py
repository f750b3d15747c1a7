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
from podwright.ground.durable_files import write_whole
from podwright.launcher.options._option_table import OPTION_BY_NAME, OPTIONS, Option

if TYPE_CHECKING:
    from podwright.launcher.options._option_table import Options

#: Options that concern the launch that has them, and not the launch that the file describes.
_UNSTORED_OPTIONS = (
    *("--import-config", "--export-config", "--overwrite-config"),
    *("--dry-run", "--help", "--version", "--version-format"),
)
_MAX_CONFIG_BYTES = 1 << 20  # bytes; a longest possible command line is 128 KiB a word

_TOML_ESCAPES = {number: f"\\u{number:04x}" for number in (*range(32), 127)}
_TOML_ESCAPES |= {ord('"'): '\\"', ord("\\"): "\\\\"}

OptionsWithText = list[tuple[Option, str]]


def read_config(config_path: str) -> tuple[OptionsWithText, list[str]]:
    """Return the options in a file, as if they were typed, and the program.

    Raises InvalidRequest, in one line.
    """
    try:
        toml_document = _read_toml_file(config_path)
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else " ".join(str(error).split())
        raise InvalidRequest(
            f"--import-config: {config_path}: {reason or type(error).__name__}"
        ) from None
    program_and_arguments = toml_document.pop("program", [])
    if not isinstance(program_and_arguments, list) or not all(
        _is_fit_text(argument) for argument in program_and_arguments
    ):
        raise _bad_config_error(config_path, "program is not an array of strings")
    options_table = toml_document.pop("options", {})
    if toml_document or not isinstance(options_table, dict):
        raise _bad_config_error(
            config_path,
            f"it holds {next(iter(toml_document), 'options')!r} beside program and [options]",
        )
    stored_options: OptionsWithText = []
    for option_name, option_value in options_table.items():
        option = OPTION_BY_NAME.get(f"--{option_name}")
        if option is None or option.name in _UNSTORED_OPTIONS:
            raise _bad_config_error(config_path, f"there is no option {option_name!r} to store")
        value_list = (
            option_value if isinstance(option_value, list) and option.adds else [option_value]
        )
        for single_value in value_list:
            stored_options.append(
                (option, _toml_value_text(config_path, option_name, single_value))
            )
    return stored_options, program_and_arguments


def _read_toml_file(config_path: str) -> dict[str, Any]:
    import tomllib  # imported only with --import-config

    descriptor = os.open(config_path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as config_file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("this is not an ordinary file")
        content = config_file.read(_MAX_CONFIG_BYTES + 1)
    if len(content) > _MAX_CONFIG_BYTES:
        raise ValueError("this is too large for a configuration file")
    return tomllib.loads(content.decode())


def _toml_value_text(config_path: str, option_name: str, toml_value: Any) -> str:
    """Return a value as a user would type it."""
    if isinstance(toml_value, bool):
        return "yes" if toml_value else "no"
    if isinstance(toml_value, int | float):
        return str(toml_value)
    if _is_fit_text(toml_value):
        return str(toml_value)
    raise _bad_config_error(config_path, f"{option_name} has a value that no option takes")


def _is_fit_text(toml_value: Any) -> bool:
    return isinstance(toml_value, str) and "\0" not in toml_value


def _bad_config_error(config_path: str, reason: str) -> InvalidRequest:
    return InvalidRequest(f"--import-config: {config_path}: {reason}")


def config_text(launch_options: Options) -> str:
    """Return options and program as the text of such a file. Raises InvalidRequest for invalid
    text.
    """
    default_options = type(launch_options)()
    toml_lines = ["# A launch of poprun; start it again with: poprun --import-config FILE"]
    toml_lines += [f"program = {_toml_array(launch_options.program)}", "", "[options]"]
    for option in OPTIONS:
        value = getattr(launch_options, option.field, None)
        if option.name in _UNSTORED_OPTIONS or value == getattr(default_options, option.field):
            continue
        toml_lines.append(f"{option.name.removeprefix('--')} = {_toml_value(value)}")
    text = "\n".join([*toml_lines, ""])
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(
            "--export-config: the command line holds bytes that are not text in UTF-8"
        ) from None
    return text


def _toml_value(option_value: Any) -> str:
    if isinstance(option_value, bool):
        return "true" if option_value else "false"
    if isinstance(option_value, int | float):
        return repr(option_value)
    if isinstance(option_value, tuple):
        return _toml_array(
            element if isinstance(element, str) else f"{element[0]}:{element[1]}"
            for element in option_value
        )
    return _toml_string(option_value)


def _toml_array(strings: Any) -> str:
    return f"[{', '.join(map(_toml_string, strings))}]"


def _toml_string(string: str) -> str:
    return f'"{string.translate(_TOML_ESCAPES)}"'


def write_config(
    launch_options: Options, config_path: str, overwrite: bool, wall_time: float | None = None
) -> str:
    """Write the file, readable only by this user, and return its path. An existing file stays by
    default.

    Raises InvalidRequest if it cannot be written.
    """
    toml_text = config_text(launch_options)
    written_path = config_path
    try:
        if not overwrite and os.path.lexists(config_path):
            suffix = time.strftime("%Y%m%d-%H%M%S", time.localtime(wall_time))
            written_path = f"{config_path}.{suffix}"
        if overwrite:
            write_whole(written_path, toml_text)
        else:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with open(os.open(written_path, flags, 0o600), "w", encoding="utf-8") as file:
                file.write(toml_text)
    except OSError as error:
        raise InvalidRequest(f"--export-config: {written_path}: {error.strerror}") from None
    return written_path


def given(
    stored_options: OptionsWithText, typed_options: Sequence[tuple[Option, str]]
) -> OptionsWithText:
    """Return the options that count: the typed ones, and the stored ones of the others."""
    names = {option.name for option, _ in typed_options}
    return [
        *(
            option_and_text
            for option_and_text in stored_options
            if option_and_text[0].name not in names
        ),
        *typed_options,
    ]
