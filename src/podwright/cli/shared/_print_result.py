"""A result as text or as JSON, services' logs, and packages that only some verbs need."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


def show_result(
    as_json: bool, value: object, text: Callable[[], str], indent: int | None = 2
) -> None:
    """Print a result for people, or `value` as JSON. indent: None puts it on one line."""
    if not as_json:
        print(text())
        return
    import json

    print(json.dumps(value, indent=indent))


def log_to_stderr() -> None:
    """Send the log of a service to standard error, where its supervisor reads it."""
    import logging
    import sys

    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )


@contextmanager
def needing(extra: str, operation: str = "", problem: str = "is not installed") -> Iterator[None]:
    """Raise Unavailable where a package is missing. extra: of podwright, which brings it."""
    try:
        yield
    except ModuleNotFoundError as error:
        from podwright.errors import Unavailable
        from podwright.ground.pods_extra import install_command

        raise Unavailable(
            f"{error.name} {problem}",
            operation=operation,
            would_work=install_command(extra=extra),
        ) from None
