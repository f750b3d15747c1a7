"""`podwright web`: opens the server's page, logged in as whom the kernel says you are."""

from __future__ import annotations

import argparse
import html
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from podwright.cli._server import connect, server_options

if TYPE_CHECKING:
    from pathlib import Path

_EXAMPLES = """\
examples:
  podwright web                 of this machine's server, or one of your own
  podwright web --no-open       print the address, for a browser elsewhere

The address that it prints logs in once, within a minute. Through ssh:
  ssh -L 8091:127.0.0.1:8091 head1 podwright web --no-open"""


def add_parser(verbs: Any, _words: Sequence[str] = ()) -> None:
    """The verb and its options."""
    words = verbs.add_parser(
        "web",
        help="show the pod in a browser",
        description="Show the pod, its waiting line and its partitions in a browser, live.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[server_options()],
    )
    words.add_argument("--no-open", action="store_true", help="open no browser")


def main(arguments: argparse.Namespace) -> int:
    """Print the address, and open it. Raises wire.PodwrightError."""
    from podwright.errors import Denied, NotFound

    found = connect(arguments)
    try:
        page = found.client.get_server_info().page
        if not page:
            raise NotFound(
                f"the server at {found.address} has no page",
                asked="podwright web",
                would_work="start it with vipu-server --http-port 8091",
            )
        try:
            address = f"{page}login#token={found.client.issue_token().token}"
        except Denied:  # on TCP nobody vouches for us: the page asks for a key
            address = page
    finally:
        found.client.close()
    print(address, flush=True)
    if not arguments.no_open and _has_browser():
        _open(address)
    return 0


def _has_browser() -> bool:
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


def _open(address: str) -> None:
    """By a file that is ours alone: a browser's arguments are for all to read."""
    import webbrowser

    from podwright.cli._places import state_folder

    folder = state_folder(system=False)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    webbrowser.open(_leads_to(folder / "page.html", address).as_uri())


def _leads_to(file: Path, address: str) -> Path:
    text = html.escape(address)
    with open(
        os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w"
    ) as page:
        page.write(
            f'<!doctype html><meta charset="utf-8"><title>Podwright</title>'
            f'<meta http-equiv="refresh" content="0; url={text}">'
            f'<a href="{text}">Podwright</a>\n'
        )
    file.chmod(0o600)
    return file
