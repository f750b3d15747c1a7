"""The administrator's guide, typed as it stands: every line of its `sh` blocks, in order.

Only places and ports are this test's own. `systemctl` is a stand-in that starts what the units of
`packaging/systemd` say, with their environment files, so that those are tried as well.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from podwright.hosts import processes
from tests.ports import free_ports
from tests.whole.conftest import BIN, REPOSITORY

PAGES = ("install.md", "operating.md")
SYSTEMCTL = """\
#!{python}
import os, pathlib, shlex, signal, socket, subprocess, sys, time
root = pathlib.Path({root!r})
verb, *names = [word for word in sys.argv[1:] if word != "--now"]
for name in names:
    base, at, instance = name.partition("@")
    pid = root / f"{{name}}.pid"
    if verb == "stop":
        os.kill(int(pid.read_text()), signal.SIGTERM)
        while pathlib.Path(f"/proc/{{pid.read_text()}}/stat").exists():
            time.sleep(0.02)
        continue
    unit = (root / f"etc/systemd/system/{{base}}{{at}}.service").read_text()
    unit = unit.replace("%i", instance).replace("/etc/podwright", str(root / "etc/podwright"))
    settings = {{}}
    for line in unit.splitlines():
        key, _, value = line.partition("=")
        if key == "EnvironmentFile" and pathlib.Path(value.lstrip("-")).exists():
            for setting in pathlib.Path(value.lstrip("-")).read_text().splitlines():
                settings.update([setting.split("=", 1)])
        if key == "ExecStart":
            command = value
    words = shlex.split(command.replace("$OPTIONS", settings.get("OPTIONS", "")))
    if base == "vipu-agent":
        words += ["--state", str(root / f"{{instance}}.json")]
    else:  # whatever goes wrong with the guide: never this machine's own store
        words += ["--storage", str(root / "var/lib/podwright/vipu-server.db")]
    assert "Type=notify" in unit
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notice:
        notice.bind(f"\\0{{pid}}")
        notice.settimeout(300)
        with open(root / f"{{name}}.log", "ab") as log:
            subprocess.run(
                ["setsid", "-f", "sh", "-c", 'echo $$ > "$0"; exec "$@"', str(pid), *words],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=True,
                env={{**os.environ, "NOTIFY_SOCKET": f"@{{pid}}"}},
            )
        assert notice.recv(64) == b"READY=1"
"""


class Site:
    """A site's root folder: /etc, /var, /run of its own, and ports that are free."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("etc/systemd/system", "var/lib", "run", "bin"):
            (root / name).mkdir(parents=True)
        systemctl = root / "bin/systemctl"
        systemctl.write_text(SYSTEMCTL.format(python=sys.executable, root=str(root)))
        systemctl.chmod(0o755)
        subprocess.run(
            [
                *("tar", "--create", "--gzip", "--file", root / "podwright-0.1.0.tar.gz"),
                *("--transform", "s,^,podwright-0.1.0/,", "-C", REPOSITORY, "packaging"),
            ],
            check=True,
        )
        self.environ = {
            **os.environ,
            "PATH": f"{root}/bin:{BIN}:{os.environ['PATH']}",
            "PODWRIGHT_SOCKET": f"{root}/run/server.sock",
        }
        self.places = {
            **{f"/{name}/podwright": f"{root}/{name}/podwright" for name in ("etc", "var/lib")},
            "/etc/systemd": f"{root}/etc/systemd",
            **{
                str(port): str(free)
                for port, free in zip((8081, 8082, 8090, 8091), free_ports(4), strict=True)
            },
        }

    def type(self, lines: str) -> str:
        """Type lines into a shell in the checkout; what they printed."""
        for place, ours in self.places.items():
            lines = lines.replace(place, ours)
        done = subprocess.run(
            [
                "bash",
                "-euo",
                "pipefail",
                "-c",
                f"cd {self.root}\n{lines}",
            ],
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        logs = "\n".join(log.read_text() for log in self.root.glob("*.log"))
        assert done.returncode == 0, f"{lines}\n{done.stdout}{done.stderr}\n{logs}"
        return done.stdout

    def stop(self) -> None:
        """Kill the daemons, and wait until they have ended.

        A zombie has ended. It becomes a child of this process if an earlier test made this process
        a subreaper, and stays.
        """
        daemons = [int(file.read_text()) for file in self.root.glob("*.pid")]
        for pid in daemons:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 300
        while any(p.pid in daemons and not p.dead for p in processes().values()):
            assert time.monotonic() < deadline, daemons
            time.sleep(0.05)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.stop()


@pytest.mark.timeout(1200)
def test_the_guide_works_as_it_is_printed(site: Site) -> None:
    said = []
    for page in PAGES:
        text = (REPOSITORY / "docs/admin" / page).read_text()
        blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        assert len(blocks) >= 5
        said += [site.type(block) for block in blocks]
    every = "".join(said)
    for words in (
        "create cluster (c1): success.",
        "test cluster (c1): success.",
        "create user (alice): success. Access key is",
        "it runs",
        "set quota (alice in a1): success.",
        "drain machine (ag2): success.",
        "resume machine (ag2): success.",
        "CreatePartition p1",
    ):
        assert words in every, every
    assert re.search(r"^ag2 .* DRAINED ", every, re.MULTILINE)
    listed = json.loads(site.type("vipu list partitions --json"))
    assert [(p["partition"]["id"], p["partition"]["ready_state"]) for p in listed] == [
        ("p1", "PS_ACTIVE")
    ], "it was there when the backup was taken"
