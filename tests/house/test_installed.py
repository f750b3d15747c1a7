"""Tests pass where the product is installed: none of them looks at the files of its machine.

A part of the suite runs in a mount namespace in which a system's server seems to be installed: its
unit, settings, store, sockets and keys are there, and so are accounts that pages name.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
#: $1: a folder with `etc`, `run`, `var/lib`, whose files appear in front of the machine's own. What
#: is below is read only, since an overlay without an upper folder is.
_INSTALLED = """\
for folder in etc run var/lib; do
    mount -t overlay overlay -o "lowerdir=$1/$folder:/$folder" "/$folder"
done
shift
exec "$@"
"""
_SERVER_LEFT = (
    "etc/systemd/system/vipu-server.service",
    "etc/podwright/vipu-server.env",
    "etc/podwright/server.toml",
    "etc/vipu/vipu-cli.hcl",
    "var/lib/podwright/vipu-server.db",
    "var/lib/podwright/agent.key",
    "run/podwright/server.sock",
    "run/podwright/agent.sock",
)
#: Tests that start commands, servers and launches without a server's name, or look for a server.
_PART = (
    "tests/cli/test_bad_input.py",
    "tests/client/test_find.py",
    "tests/client/test_start.py",
)


@pytest.fixture
def installed(tmp_path: Path) -> list[str]:
    """The words in front of a command that has it see a machine where a server is installed."""
    machine = tmp_path / "machine"
    for name in _SERVER_LEFT:
        file = machine / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text('api_host = "203.0.113.1"\n')
    passwd = Path("/etc/passwd").read_text() + "alice:x:4242:4242::/home/alice:/bin/sh\n"
    (machine / "etc/passwd").write_text(passwd)
    spaces = ["unshare", "--mount", "--propagation", "private"]
    spaces += [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    words = [*spaces, "sh", "-euc", _INSTALLED, "sh", str(machine)]
    probe = subprocess.run([*words, "true"], capture_output=True, text=True, check=False)
    if probe.returncode:
        pytest.skip(f"no mount namespace can be made here: {probe.stderr.strip()}")
    return words


@pytest.fixture
def folder() -> Iterator[str]:
    """A folder for temporary files whose name is short: Unix sockets of tests are below it."""
    with tempfile.TemporaryDirectory(prefix="podwright-") as made:
        yield made


def test_a_part_of_the_suite_with_a_server_installed(installed: list[str], folder: str) -> None:
    seen = subprocess.run(
        [*installed, sys.executable, "-m", "podwright.cli.vipu", "list", "partitions"],
        env={name: value for name, value in os.environ.items() if name != "PODWRIGHT_ROOT"},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert seen.returncode == 69
    assert "this machine's server does not run" in seen.stderr, "else it would not seem installed"
    done = subprocess.run(
        [
            *installed,
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "--basetemp",
            f"{folder}/t",
            *_PART,
        ],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout
