"""Debian packages in clean Debians without a network: installed, used, upgraded, purged.

There is no systemd as PID 1: units are verified, and what they start is started as they would,
under their account and with the capabilities that they leave it; killed, and started again. Under
`make soak` a systemd of the test's own does it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.debian import MACHINES, SUITES, fields, locked_wheels, pack, server_tree, slurm_tree
from tools.release import ROOT, build, commit_time, export

from podwright.cli.about._command_parsers import COMMANDS, SECTIONS
from tests.outer.debian import Debian
from tests.outer.lab._release import clean, release
from tests.outer.machine import Machine
from tests.pages import Block, blocks

pytestmark = pytest.mark.outer

ALICE = "games"
_PYTHON = "/usr/lib/podwright/bin/python3"
#: Where `podwright slurm configure` finds the hook and the plugin.
_NATIVE = (
    "from podwright.guests.slurm.command._pod_configure_options import native_folder; "
    "print(native_folder())"
)
IMAGE = blocks(ROOT / "docs" / "admin" / "image.md")


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our wheel, of what is committed."""
    folder = tmp_path_factory.mktemp("own")
    build(export(ROOT, folder), folder / "dist", commit_time(ROOT, "HEAD"))
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel


@pytest.fixture(scope="module", params=sorted(SUITES))
def debs(
    request: pytest.FixtureRequest, own: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    """A Debian's name, and a folder with its packages: first.deb, next.deb, slurm.deb."""
    os.environ["PODWRIGHT_QUICK"] = "1"
    name: str = request.param
    suite, folder = SUITES[name], tmp_path_factory.mktemp(name)
    machine = {v: k for k, v in MACHINES.items()}[os.uname().machine]
    tree, into = folder / "tree", folder / "debs"
    into.mkdir()
    server_tree(tree, [*locked_wheels(suite, os.uname().machine, folder), own], suite)
    when = commit_time(ROOT, "HEAD")
    for number, version in (("first", "0.0.9"), ("next", "0.1.0")):
        told = fields(suite, version, machine)
        pack(tree, "podwright", into, told, when).rename(into / f"{number}.deb")
    headers = release("oldest" if name == "bookworm" else "middle").headers
    slurm_tree(folder / "slurm", headers)
    pack(folder / "slurm", "podwright-slurm", into, told, when).rename(into / "slurm.deb")
    return name, into


@pytest.fixture
def debian(debs: tuple[str, Path], tmp_path: Path) -> Iterator[Debian]:
    there = Debian(debs[0], tmp_path, debs[1])
    yield there
    there.close()


def test_packages_install_upgrade_and_purge(debian: Debian) -> None:
    debian.run("dpkg -i /debs/first.deb")
    _everything_is_there(debian)
    _units_are_well_formed(debian, "vipu-server.service", "vipu-agent@ag1.service")
    debian.run("echo 'OPTIONS=\"--system --preset pod16\"' >/etc/podwright/vipu-server.env")
    debian.run("install -d -o podwright -g podwright /run/podwright")  # as its RuntimeDirectory is
    server = debian.start_server()
    debian.run("vipu create partition kept --size 4", user=ALICE)
    _programs_run(debian)
    debian.kill_server(server)
    server = debian.start_server()
    assert "kept" in debian.run("vipu list partitions", user=ALICE)
    debian.kill_server(server)

    debian.run("dpkg -i /debs/next.deb")
    assert debian.run("dpkg-query -W -f '${Version}' podwright").startswith("0.1.0-1~deb")
    assert "pod16" in debian.run("cat /etc/podwright/vipu-server.env")
    server = debian.start_server()
    assert "kept" in debian.run("vipu list partitions", user=ALICE)

    debian.run("dpkg -i /debs/slurm.deb")
    _units_are_well_formed(debian, "podwright-slurm.service")
    assert debian.run(f"{_PYTHON} -c '{_NATIVE}'") == "/usr/lib/podwright/slurm\n"
    # What it leaves open is Slurm's own; all libraries are there.
    libraries = debian.run("ldd /usr/lib/podwright/slurm/*")
    assert "not found" not in libraries
    assert "slurm_spank" in debian.run(
        "grep -ao slurm_spank /usr/lib/podwright/slurm/*.so | head -1"
    )

    debian.kill_server(server)
    debian.run("dpkg --remove podwright-slurm podwright")
    assert debian.run("ls /var/lib/podwright /etc/podwright").split()
    debian.run("dpkg --purge podwright-slurm podwright")
    left = "ls -d /usr/lib/podwright /var/lib/podwright /etc/podwright /usr/bin/vipu 2>/dev/null"
    assert debian.run(f"{left} || true") == ""
    assert debian.run("getent passwd podwright || true") == ""


def _everything_is_there(debian: Debian) -> None:
    for command in COMMANDS:
        assert debian.run(f"{command} --version")
        number = SECTIONS[command]
        debian.run(f"zcat /usr/share/man/man{number}/{command}.{number}.gz | grep -q '^.TH'")
        debian.run(f"test -s /usr/share/bash-completion/completions/{command}")
        debian.run(f"test -s /usr/share/zsh/vendor-completions/_{command}")
    shown = debian.run("stat -c '%U %a' /var/lib/podwright; getent passwd podwright")
    assert shown.startswith("podwright 700\npodwright:x:")
    assert (
        debian.run("find / -xdev -newer /debs/first.deb -perm /022 -path '*podwright*' -type f")
        == ""
    )


def _units_are_well_formed(debian: Debian, *units: str) -> None:
    paths = [f"{debian.root}/usr/lib/systemd/system/{unit.replace('@ag1', '@')}" for unit in units]
    done = debian.here(["systemd-analyze", "--no-pager", "verify", *paths])
    # That Debian's own units may know more than this machine's systemd does.
    ours = [line for line in done.stderr.splitlines() if "vipu" in line or "podwright" in line]
    assert (done.returncode, ours) == (0, [])


def _programs_run(debian: Debian) -> None:
    """Also over MPI: mpirun comes with the package."""
    words = "poprun --num-replicas 4 --num-instances 2"
    out = debian.run(f"cd /tmp; HOME=/tmp {words} --launcher local sh -c 'echo $RANK'", user=ALICE)
    assert sorted(line[-1] for line in out.splitlines()) == ["0", "1"]
    out = debian.run(f"cd /tmp; HOME=/tmp {words} sh -c 'echo $PMIX_RANK'", user=ALICE)
    assert sorted(line[-1] for line in out.splitlines()) == ["0", "1"]


#: Containers where the kernel leaves us less than they would have: their files in memory, no
#: cgroups, no more files than we may open ourselves.
_STORAGE = """\
cat >/tmp/storage.conf <<'END'
[storage]
driver = "overlay"
graphroot = "/tmp/storage"
runroot = "/run/storage"
END
cat >/tmp/containers.conf <<'END'
[containers]
cgroups = "disabled"
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
[engine]
cgroup_manager = "cgroupfs"
END
export CONTAINERS_STORAGE_CONF=/tmp/storage.conf CONTAINERS_CONF=/tmp/containers.conf
export BUILDAH_ISOLATION=chroot
! mountpoint -q /sys/fs/cgroup/unified || umount /sys/fs/cgroup/unified
"""
#: What the Containerfile calls its base is a Debian that is here already.
_BASE = """\
base=$(buildah from scratch)
there=$(buildah mount $base)
without="--exclude ./usr/share/doc --exclude ./usr/share/locale --exclude ./var/cache/apt"
tar -C {clean} $without --exclude ./var/lib/apt/lists -c . | tar -C $there -x
buildah config --env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin $base
buildah commit --quiet --rm $base docker.io/library/debian:12-slim
"""
_SERVER = """\
name=$(buildah from podwright)
there=$(buildah mount $name)
for d in run lib; do install -d /tmp/$d; chown --reference=$there/var/lib/podwright /tmp/$d; done
within="buildah run --volume /tmp/run:/run/podwright --volume /tmp/lib:/var/lib/podwright $name"
$within vipu-server --system --preset pod16 &
"""


@pytest.fixture
def image(debs: tuple[str, Path], tmp_path: Path) -> Iterator[Machine]:
    """A machine where the page's first line made the image."""
    checkout = tmp_path / "checkout"
    shutil.copytree(ROOT / "packaging" / "image", checkout / "packaging" / "image")
    (checkout / "dist").mkdir()
    shutil.copy(debs[1] / "first.deb", checkout / "dist" / "podwright_0.0.9-1~deb12_amd64.deb")
    with Machine(release("oldest"), tmp_path, checkout) as machine:
        machine.type(Block(_STORAGE + _BASE.format(clean=clean(debs[0])), None))
        machine.type(IMAGE[0])
        yield machine


@pytest.mark.parametrize("debs", ["bookworm"], indirect=True)
def test_the_image_serves_and_launches(image: Machine) -> None:
    image.type(Block(_SERVER, "... pod16 (16 IPUs, SIMULATED) on ...\n"))
    image.type(Block("$within whoami", "podwright\n"))
    launch = "$within poprun --num-replicas 4 --num-instances 2 sh -c 'echo it runs' 2>/dev/null"
    image.type(Block(f"{launch} | sort", "[1,0]<stdout>: it runs\n[1,1]<stdout>: it runs\n"))
    image.type(Block("$within vipu-agent --machine ag1 --port 8081 &", "... ag1 ...\n"))


@pytest.mark.soak
@pytest.mark.parametrize("debs", ["bookworm"], indirect=True)
def test_the_page_of_the_image_is_typed(image: Machine) -> None:
    """By podman, which wants more of a kernel."""
    for block in IMAGE[1:]:
        image.type(block)


#: systemd as the first process of namespaces of its own, where it finds its cgroups; it starts
#: nothing but what it needs itself, and what it is told.
_SYSTEMD = """\
dpkg --install /src/first.deb >/dev/null 2>&1
echo 'OPTIONS="--system --preset pod16"' >/etc/podwright/vipu-server.env
rm -rf /etc/systemd/system/*.wants
cat >/tmp/begin <<'END'
mount -t proc proc /proc
mount -t tmpfs -o mode=755 tmpfs /run
mount -t sysfs -o ro sysfs /sys
if [ ! -e /sys/fs/cgroup/cgroup.controllers ]; then
    mount -t tmpfs tmpfs /sys/fs/cgroup
    mkdir /sys/fs/cgroup/systemd
    mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd
fi
export container=lab PATH=/usr/sbin:/usr/bin:/sbin:/bin
unset PYTHONPATH
exec /lib/systemd/systemd --system --unit=vipu-server.service
END
unshare -mpC --fork --kill-child --propagation private bash -e /tmp/begin &
first=$!
until init=$(pgrep -P $first) && grep -q systemd /proc/$init/comm; do sleep 0.1; done
there="nsenter -t $init -m -p -C env -u PYTHONPATH PATH=/usr/sbin:/usr/bin:/sbin:/bin"
until $there systemctl is-active --quiet vipu-server; do sleep 0.2; done
"""
_KILLED = """\
$there kill -9 $pid
until test "$($there systemctl show vipu-server -p NRestarts --value)" -ge 1; do sleep 0.2; done
until $there systemctl is-active --quiet vipu-server; do sleep 0.2; done
$there vipu list partitions 2>/dev/null | grep -c kept
"""


@pytest.mark.soak
@pytest.mark.parametrize("debs", ["bookworm"], indirect=True)
def test_systemd_itself_runs_the_units(debs: tuple[str, Path], tmp_path: Path) -> None:
    """Under all that they say, system calls too; killed and started again. By this machine's own
    systemd, which wants more of a kernel than the other tests."""
    with Machine(release("oldest"), tmp_path, debs[1]) as machine:
        machine.type(Block(_SYSTEMD, "..."))
        machine.type(Block("$there vipu create partition kept --size 4 2>&1", "...\n...success.\n"))
        machine.type(Block("pid=$($there systemctl show vipu-server -p MainPID --value)", ""))
        held = "NoNewPrivs:...1\nSeccomp:...2\n"
        machine.type(Block("$there grep -E '^(NoNew.*|Seccomp):' /proc/$pid/status", held))
        inside = "$there nsenter -t $pid -m"
        refused = "touch: ...: Read-only file system\n"
        machine.type(Block(f"! {inside} touch /usr/x", refused))
        machine.type(Block(f"! {inside} touch /etc/podwright/x", refused))
        machine.type(Block(f"{inside} ls /dev/mem /home/. 2>&1 || true", "ls: ...\n/home/.:\n"))
        machine.type(Block(_KILLED, "1\n"))
        machine.type(Block("$there systemctl start vipu-agent@ag1", ""))
        machine.type(Block("$there systemctl is-active vipu-agent@ag1", "active\n"))
        machine.type(Block("$there systemctl stop vipu-server vipu-agent@ag1", ""))
        ended = "Result=success\n\nResult=success\n"
        machine.type(Block("$there systemctl show -p Result vipu-server vipu-agent@ag1", ended))
