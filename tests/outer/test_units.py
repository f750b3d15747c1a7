"""The systemd units, without a running systemd: well formed, closed as far as they say, and the
server does its work in what its unit leaves it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from podwright.client import Client, UnixTransport
from podwright.errors import PodwrightError
from podwright.wire import PartitionSpec

pytestmark = pytest.mark.outer

UNITS = Path(__file__).parents[2] / "packaging" / "systemd"
BIN = Path(sys.executable).parent
#: What `systemd-analyze security` calls exposed, of 100: at most. GPUs and Slurm want much.
EXPOSED = {
    "vipu-server.service": 30,
    "vipu-agent@.service": 75,
    "podwright-slurm.service": 90,
    "podwright-lint.service": 20,
    "podwright-twin.service": 60,
}
#: A host whose file system may be read alone, but for these two folders.
CONFINED = """
mount --make-rprivate /
mount --bind "$1" "$1"; mount --bind "$2" "$2"
mount -o remount,bind,ro /
cd "$1"; shift 2; exec "$@"
"""


def test_every_unit_is_here() -> None:
    assert {unit.name for unit in UNITS.iterdir()} == set(EXPOSED)


@pytest.mark.parametrize("name", EXPOSED)
def test_systemd_understands_a_unit_and_finds_it_closed(name: str) -> None:
    verified = _analyze("verify", UNITS / name)
    assert (verified.returncode, verified.stdout, verified.stderr) == (0, "", "")
    wanted = f"--threshold={EXPOSED[name]}"
    closed = _analyze("security", "--offline=true", wanted, UNITS / name)
    assert closed.returncode == 0, closed.stdout


@pytest.mark.parametrize("name", EXPOSED)
def test_systemd_never_gives_up_and_a_unit_has_bounds(name: str) -> None:
    said = _settings(name)
    assert (said["Restart"], said["StartLimitIntervalSec"]) == ("always", "0")
    assert said["MemoryMax"]
    if name != "podwright-lint.service":  # which has one connection at a time
        assert int(said["LimitNOFILE"]) >= 4096


def _analyze(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", "--no-pager", *words],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def _settings(name: str) -> dict[str, str]:
    lines = (UNITS / name).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def test_the_server_needs_no_more_than_its_unit_leaves_it(tmp_path: Path) -> None:
    """Root without root's capabilities, umask 0077, and nowhere to write but its two folders."""
    unit = _settings("vipu-server.service")
    assert (unit["ProtectSystem"], unit["UMask"], unit["Type"]) == ("strict", "0077", "notify")
    state, run = tmp_path / "state", tmp_path / "run"
    state.mkdir(mode=0o700)
    run.mkdir(mode=0o755)
    capabilities = [f"+{c[4:].lower()}" for c in unit["CapabilityBoundingSet"].split()]
    words = ["unshare", "-m", "sh", "-euc", CONFINED, "sh", str(state), str(run)]
    words += ["setpriv", "--no-new-privs", "--inh-caps=-all"]
    words += ["--bounding-set=" + ",".join(["-all", *capabilities])]
    words += [str(BIN / "vipu-server"), "--preset", "pod16", "--api-port", "0"]
    words += ["--http-port", "0", "--storage", str(state / "db"), "--socket", str(run / "s")]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(words, umask=0o077, stdout=log, stderr=log)
    try:
        with Client(UnixTransport(str(run / "s")), timeout=300) as client:
            deadline = time.monotonic() + 300
            while True:
                try:
                    client.get_server_info()
                    break
                except PodwrightError:
                    assert process.poll() is None, (tmp_path / "log").read_text()
                    assert time.monotonic() < deadline
                    time.sleep(0.05)
            client.create_partition(PartitionSpec(name="p1", size=4))
            held = Path(f"/proc/{process.pid}/status").read_text()
        (effective,) = (line for line in held.splitlines() if line.startswith("CapEff"))
        assert int(effective.split()[1], 16).bit_count() == len(capabilities)
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 0, (tmp_path / "log").read_text()
    finally:
        process.kill()
        process.wait(300)
    assert (state / "db").stat().st_mode & 0o077 == 0
