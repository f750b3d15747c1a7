"""`podwright web`: opens the server's page, logged in as the user that the kernel reports."""

from __future__ import annotations

import html
import os
from typing import TYPE_CHECKING

from podwright.cli.shared._server_options import ServerNames, connect
from podwright.cli.shared._verb_definition import Verb
from podwright.ground import option_rows as opt

if TYPE_CHECKING:
    from pathlib import Path

_EXAMPLES = """\
examples:
  podwright web                 of this machine's server, or one of your own
  podwright web --no-open       print the address, for a browser elsewhere

The address that it prints logs in once, within a minute. Through ssh:
  ssh -L 8091:127.0.0.1:8091 head1 podwright web --no-open"""


class _WebOptions(ServerNames):
    no_open = opt.flag("open no browser")


def _run(arguments: _WebOptions) -> int:
    """Print the address, and open it. Raises wire.PodwrightError."""
    from podwright.errors import Denied, NotFound

    server = connect(arguments)
    try:
        page = server.client.get_server_info().page
        if not page:
            raise NotFound(
                f"the server at {server.address} has no page",
                operation="podwright web",
                would_work="start it with vipu-server --http-port 8091",
            )
        try:
            address = f"{page}login#token={server.client.issue_token('page').token}"
        except Denied:  # over TCP the kernel reports no user, so the page asks for a key
            address = page
    finally:
        server.client.close()
    print(address, flush=True)
    if not arguments.no_open and _has_browser():
        _open(address)
    return 0


def _has_browser() -> bool:
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


def _open(address: str) -> None:
    """Open the page through a private file, since all users can read a browser's arguments."""
    import webbrowser

    from podwright.hosts._state_folders import state_folder

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


VERBS = (
    Verb(
        "web",
        _WebOptions,
        _run,
        help="show the pod in a browser",
        description="Show the pod, its queue and its partitions in a browser, live.",
        epilog=_EXAMPLES,
    ),
)
