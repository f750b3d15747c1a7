"""A command's options from a TOML file: `api-port = 8090` means `--api-port 8090`.

The file's options are put in front of the typed words. So one parser checks both, and a typed
option overrides the file's.
"""

from __future__ import annotations

import argparse
import tomllib

from podwright.cli.shared._arguments import nearest
from podwright.errors import InvalidRequest


def words(parser: argparse.ArgumentParser, path: str) -> list[str]:
    """Return the file's options as words of the command. Raises wire.InvalidRequest."""
    try:
        with open(path, "rb") as file:
            settings = tomllib.load(file)
    except OSError as error:
        raise InvalidRequest(f"cannot read {path}: {(error.strerror or '').lower()}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{path}: {error}") from None
    known = {
        option.removeprefix("--"): action
        for action in parser._actions
        for option in action.option_strings
        if option.startswith("--")
    }
    values: list[str] = []
    for key, value in settings.items():
        action = known.get(key)
        if action is None or key in ("config-file", "help", "version"):
            raise InvalidRequest(f"{path}: there is no setting {key!r}{nearest(key, known)}")
        if action.nargs != 0:
            values += _valued(path, key, value if isinstance(value, list) else [value])
        elif not isinstance(value, bool):
            raise InvalidRequest(f"{path}: {key} is either true or false")
        elif value:
            values.append(f"--{key}")
    return values


def _valued(path: str, key: str, items: list[object]) -> list[str]:
    for item in items:
        if isinstance(item, bool) or not isinstance(item, str | int | float):
            raise InvalidRequest(f"{path}: {key} is a text or a number")
    return [f"--{key}={item}" for item in items]
