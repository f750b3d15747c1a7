"""TLS with certificates that openssl made, over the commands: both sides show theirs."""

from __future__ import annotations

import os
import re
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from podwright.guests.kubernetes import make_job_keys
from podwright.hosts._kubernetes_workers import LAUNCHER_ROLE, WORKER_ROLE, tls_context_of_role
from tests.ports import free_port

BIN = Path(sys.executable).parent

pytestmark = pytest.mark.outer


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "HOME": str(folder), "XDG_RUNTIME_DIR": str(folder)}
    return subprocess.run(
        [str(BIN / words[0]), *words[1:]],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A secure server with TLS; its administrator's settings are in chief.hcl."""
    place = ("--storage", str(tmp_path / "db"), "--socket", str(tmp_path / "s"))
    made = run(tmp_path, "vipu-server", "--tls-init")
    assert made.returncode == 0, made.stderr
    made = run(tmp_path, "vipu-server", "--init", "--secure", "--default-user-id", "chief", *place)
    found = re.search("Access key is '(.+)'", made.stdout)
    assert found, made
    (tmp_path / "chief.hcl").write_text(f'api-user-id="chief"\napi-access-key="{found[1]}"\n')
    port = free_port()
    words = [str(BIN / "vipu-server"), "--preset", "pod16", "--api-port", str(port), *place]
    words += ["--tls-certs", "vipu-certs/server"]
    with subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "pod16" in process.stderr.readline()
        yield f"localhost:{port}"
        process.kill()


def test_only_those_with_certificate_and_key_are_served(address: str, tmp_path: Path) -> None:
    listing = ("vipu", "-H", address, "list", "partitions")
    chief = ("--config", "chief.hcl")
    certs = ("--tls-certs", "vipu-certs/client")
    create = ("vipu", "-H", address, *chief, *certs, "create", "partition", "p1", "--size", "4")
    assert run(tmp_path, *create, "--no-ipuof-files").returncode == 0
    assert "p1" in run(tmp_path, *listing, *chief, *certs).stdout
    without = run(tmp_path, *listing, *chief)
    assert (without.returncode, "unable to connect" in without.stderr) == (69, True)
    nobody = run(tmp_path, *listing, *certs)
    assert (nobody.returncode, "wants to know who calls" in nobody.stderr) == (1, True)


def test_certificates_of_another_authority_are_refused(address: str, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    assert run(other, "vipu-server", "--tls-init").returncode == 0
    words = ("vipu", "-H", address, "--config", "chief.hcl", "--tls-certs")
    refused = run(tmp_path, *words, "other/vipu-certs/client", "list", "partitions")
    assert refused.returncode == 69, refused
    for path in (tmp_path / "vipu-certs").rglob("*.pem"):
        assert path.stat().st_mode & 0o077 == 0


def test_a_users_certificate_is_the_user(address: str, tmp_path: Path) -> None:
    chief = ("-H", address, "--config", "chief.hcl", "--tls-certs", "vipu-certs/client")
    for word in ("alice", "bob"):
        assert run(tmp_path, "vipu-admin", *chief, "create", "user", word).returncode == 0
    made = run(tmp_path, "vipu-admin", *chief, "create", "certificate", "alice")
    assert made.returncode == 0, made
    key = tmp_path / "alice.vipu-certs" / "key.pem"
    assert key.stat().st_mode & 0o777 == 0o600
    assert key.read_text() not in made.stdout + made.stderr
    alice = ("vipu", "-H", address, "--tls-certs", "alice.vipu-certs")
    size = ("--size", "1", "--no-ipuof-files")
    assert run(tmp_path, *alice, "create", "partition", "p1", *size).returncode == 0
    shown = run(tmp_path, *alice, "get", "partition", "p1", "--json")
    assert '"owner": "alice"' in shown.stdout
    host, _, port = address.partition(":")
    program: tuple[str, ...] = ("poprun", "--vipu-server-host", host, "--vipu-server-port", port)
    program += ("--vipu-partition", "p1", "--vipu-tls-certs", "alice.vipu-certs", "true")
    done = run(tmp_path, *program)
    assert done.returncode == 0, done
    again = run(tmp_path, "vipu-admin", *chief, "create", "certificate", "alice")
    assert (again.returncode, "there is alice.vipu-certs already" in again.stderr) == (1, True)
    unknown = run(tmp_path, "vipu-admin", *chief, "create", "certificate", "carol")
    assert (unknown.returncode, "there is no user carol" in unknown.stderr) == (1, True)
    assert run(tmp_path, "vipu-admin", *chief, "remove", "user", "alice").returncode == 0
    refused = run(tmp_path, *alice, "list", "partitions")
    assert (refused.returncode, "whom this server does not have" in refused.stderr) == (1, True)


def test_names_renewal_and_one_that_is_revoked(address: str, tmp_path: Path) -> None:
    refused = run(tmp_path, "vipu-server", "--tls-init", "--name", "0.0.0.0")
    assert (refused.returncode, "stands for all addresses" in refused.stderr) == (2, True)
    renew = ("vipu-server", "--tls-renew")
    assert run(tmp_path, *renew, "--name", "head1", "--name", "10.0.0.1").returncode == 0
    assert "localhost, head1, 10.0.0.1." in run(tmp_path, *renew).stdout
    for path in (tmp_path / "vipu-certs").rglob("*.pem"):
        assert path.stat().st_mode & 0o077 == 0
    chief = ("-H", address, "--config", "chief.hcl", "--tls-certs", "vipu-certs/client")
    assert run(tmp_path, "vipu-admin", *chief, "create", "user", "alice").returncode == 0
    create = ("vipu-admin", *chief, "create", "certificate", "alice")
    made = run(tmp_path, *create)
    (tmp_path / "alice.vipu-certs").rename(tmp_path / "lost")
    assert run(tmp_path, *create).returncode == 0
    assert run(tmp_path, *create, "--renew").returncode == 0
    revoke = made.stdout.rpartition("lost: ")[2].split()
    assert run(tmp_path, *revoke[:1], *chief, *revoke[1:]).returncode == 0
    listing = ("vipu", "-H", address, "--tls-certs")
    lost = run(tmp_path, *listing, "lost", "list", "partitions")
    assert (lost.returncode, "was revoked" in lost.stderr) == (1, True)
    assert run(tmp_path, *listing, "alice.vipu-certs", "list", "partitions").returncode == 0


def test_an_agents_certificate_is_renewed_and_the_old_one_is_worth_nothing(
    address: str, tmp_path: Path
) -> None:
    chief = ("-H", address, "--config", "chief.hcl", "--tls-certs", "vipu-certs/client")
    make = ("vipu-admin", *chief, "create", "certificate", "ag1", "--agent")
    port = str(free_port())

    def number_of(*words: str) -> str:
        made = run(tmp_path, *make, *words)
        found = re.search("--certificate ([0-9a-f]+)", made.stdout)
        assert found, made
        return found[1]

    def register(number: str) -> subprocess.CompletedProcess[str]:
        place = ("--host", "127.0.0.1", "--port", port, "--replace", "--certificate", number)
        return run(tmp_path, "vipu-admin", *chief, "create", "agent", "ag1", *place)

    def agent(certs: str) -> subprocess.Popen[str]:
        words = [str(BIN / "vipu-agent"), "--machine", "ag1", "--port", port, "--tls-certs", certs]
        return subprocess.Popen([*words, "--state", "state"], cwd=tmp_path, text=True)

    first = number_of()
    with agent("ag1.vipu-certs") as running:
        made = register(first)
        running.kill()
    assert made.returncode == 0, made.stderr
    (tmp_path / "ag1.vipu-certs").rename(tmp_path / "stolen")
    assert run(tmp_path, *make).returncode == 0
    second = number_of("--renew")
    assert second != first
    for certs, number, good in (("stolen", second, False), ("ag1.vipu-certs", second, True)):
        with agent(certs) as running:
            made = register(number)
            running.kill()
        assert (made.returncode == 0) is good, made.stderr
        if not good:
            assert f"has no certificate of {second}.ag1" in made.stderr


def test_the_guides_secure_server_as_typed(tmp_path: Path) -> None:
    """The block of the guide, --api-host included, in a network of its own where that address is
    this machine's; and a name that the certificate lacks."""
    text = (Path(__file__).parents[2] / "docs/admin/guide.md").read_text()
    block = text.partition("## A secure server")[2].partition("### ")[0]
    lines = [line for line in block.splitlines() if line.startswith("vipu")]
    init, store, serve, listing = lines
    script = f"""
set -eu
ip link set lo up; ip addr add 10.0.0.1/32 dev lo; ip addr add 10.0.0.2/32 dev lo
{init}
{store} --default-user-id chief --storage db > made
{serve} --preset pod4 --storage db --socket s &
server=$!
trap 'kill $server; wait $server || true' EXIT
until [ -S s ]; do sleep 0.1; done
vipu-admin --config chief.hcl -H 10.0.0.1 --tls-certs vipu-certs/client create user alice
{listing}
kill $server; wait $server || true
{serve} --api-host 10.0.0.2 --storage db --socket s &
server=$!
until [ -S s ]; do sleep 0.1; done
vipu -H 10.0.0.2 --config alice.vipu-cli.hcl --tls-certs vipu-certs/client list partitions || true
"""
    script = script.replace(
        "until [ -S s ]",
        """key=$(sed -n "s/.*Access key is '\\(.*\\)'.*/\\1/p" made)
printf 'api-user-id="chief"\napi-access-key="%s"\n' "$key" > chief.hcl
until [ -S s ]""",
    ).replace("--api-host 10.0.0.1", "--api-host 10.0.0.1", 1)
    environ = {**os.environ, "HOME": str(tmp_path), "PATH": f"{BIN}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["unshare", "-n", "bash", "-c", script],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "create user (alice): success" in done.stdout
    assert "vipu-server --tls-renew --name 10.0.0.2" in done.stderr


def test_launcher_and_workers_of_a_job_know_each_other_and_nobody_else(tmp_path: Path) -> None:
    for job in ("one", "two"):
        (tmp_path / job).mkdir()
        make_job_keys(tmp_path / job)
    assert shake_hands(tmp_path / "one", tmp_path / "one") == "TLSv1.3"
    for launcher, worker in (("one", "two"), ("two", "one")):
        with pytest.raises(ssl.SSLError):
            shake_hands(tmp_path / launcher, tmp_path / worker)


def shake_hands(launcher: Path, worker: Path) -> str | None:
    """What the launcher and a worker with these keys speak. Raises ssl.SSLError."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    call = tls_context_of_role(LAUNCHER_ROLE, str(launcher)).wrap_bio(back, there)
    door = tls_context_of_role(WORKER_ROLE, str(worker)).wrap_bio(there, back, server_side=True)
    for side in (call, door, call, door):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return door.version()
