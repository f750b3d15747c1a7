"""`podwright version`: the build of this installation, and that of the server."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

from podwright._version import __version__

_PACKAGE = Path(__file__).parents[2]


def show_versions(environ: Mapping[str, str], *, as_json: bool, ask: bool) -> str:
    """Print the client's version and commit, and the server's version when one answers.

    ask: whether to look for a server; none is started for it.
    """
    client = {"version": __version__, "commit": commit()}
    server = _server(environ) if ask else None
    if as_json:
        return json.dumps({"client": client, "server": server}, indent=2)
    lines = [f"podwright {__version__}" + (f" ({client['commit']})" if client["commit"] else "")]
    if server:
        lines.append(f"server {server['version']} at {server['address']}")
    return "\n".join(lines)


def commit() -> str:
    """Return the commit of this build; empty when it is not known.

    A checkout has it as its HEAD, a release in a file that the build wrote beside the package.
    """
    written = _PACKAGE / "_commit.txt"
    if written.is_file():
        return written.read_text().strip()
    if not (_PACKAGE.parents[1] / ".git").exists():
        return ""
    try:
        revision = subprocess.run(
            ["git", "-C", str(_PACKAGE), "rev-parse", "--short=12", "HEAD"],
            capture_output=True,
            text=True,
            check=False,
            timeout=5,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return revision.stdout.strip()


def _server(environ: Mapping[str, str]) -> dict[str, str] | None:
    from podwright.client import LocalServers, ServerOptions, find_server
    from podwright.errors import PodwrightError, Unavailable

    places = LocalServers.running(Unavailable("no server is started to ask for its version"))
    try:
        server = find_server(ServerOptions(), environ, timeout=5.0, local_servers=places)
    except PodwrightError:
        return None
    with server.client:
        return {"version": server.info.version, "address": server.address}
