"""Hosts that are not there: each its own network, name, processes, /tmp, /run, /dev/shm, sshd.

All hosts of a lab hang on one bridge, which lives in a network namespace of its own; no namespace
has a name, so two labs never meet and a lab whose processes are gone has left nothing behind. The
file system is otherwise shared, like an NFS root. `kill` is a crash: the host's first process dies
and all in it with it; `revive` boots it again under the same name and address.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from ._folder import LabError, new_folder, poll, remove
from ._places import Inside, need, run

_INIT = """\
set -e
hostname "$1"
mount --bind "$2/hosts" /etc/hosts
mkdir -p "$2/$1/checkout"
mount --bind "$checkout" "$2/$1/checkout"
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t tmpfs tmpfs /run
mkdir -p "$checkout"
mount --bind "$2/$1/checkout" "$checkout"
umount "$2/$1/checkout"
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mkdir -p /run/sshd
mount --bind "$2/$1/ssh" /root/.ssh
/usr/sbin/sshd -f "$2/$1/sshd_config"
# It listens before it writes its number, and not yet when the command is back.
until test -s /run/sshd.pid; do sleep 0.05; done
touch "$2/$1/ready"
trap 'exit 0' TERM
while :; do sleep 3600 & wait $!; done
"""

#: On every host under the same path, also where it lies in this machine's /tmp.
CHECKOUT = Path(__file__).resolve().parents[3]

_SSHD = """\
HostKey {folder}/hostkey
PidFile /run/sshd.pid
ListenAddress {address}
PermitRootLogin yes
PasswordAuthentication no
PubkeyAuthentication yes
AuthorizedKeysFile /root/.ssh/authorized_keys
StrictModes no
UsePAM no
UseDNS no
"""


class HostsLab:
    """`HostsLab(["n1", "n2"])`, then `start()`, `exec`, `kill`, `revive`, `stop()`.

    Root on any host reaches root on any other by ssh without a question (one key for the lab).
    """

    def __init__(self, names: Sequence[str]) -> None:
        for command in ("unshare", "nsenter", "ip", "ssh-keygen"):
            need(command)
        self.names = tuple(names)
        self.folder = new_folder()
        self.address = {name: f"10.77.0.{11 + at}" for at, name in enumerate(names)}
        self._switch: subprocess.Popen[bytes] | None = None
        self._holders: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        lines = ["127.0.0.1 localhost"]
        lines += [f"{self.address[name]} {name}" for name in self.names]
        (self.folder / "hosts").write_text("\n".join(lines) + "\n")
        key = self.folder / "key"
        _check(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)])
        Path("/root/.ssh").mkdir(mode=0o700, exist_ok=True)
        self._switch = self._hold(["unshare", "-n", "sleep", "infinity"])
        own = os.readlink("/proc/self/ns/net")
        link = f"/proc/{self._switch.pid}/ns/net"
        poll("the switch", lambda: os.readlink(link) != own)
        for step in ("add br0 type bridge", "set br0 up", "set lo up"):
            self._in_switch(["ip", "link", *step.split()])
        for name in self.names:
            self._prepare(name, key)
        for name in self.names:
            self._boot(name)
        for name in self.names:
            self._await(name)

    def stop(self) -> None:
        for name in self.names:
            self.kill(name)
        remove(self.folder)
        if self._switch is not None:
            self._switch.wait()

    def __enter__(self) -> "HostsLab":
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def place(self, name: str) -> Inside:
        """Where commands of this host run. Holds until the host is killed."""
        return Inside(self.first_process(name), spaces="-n -u -m -p -i")

    def exec(
        self,
        name: str,
        *argv: str,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        timeout: float = 300.0,
    ) -> subprocess.CompletedProcess[str]:
        return run(self.place(name), argv, env=env, user=user, timeout=timeout)

    def stopped(self, name: str, command: str) -> bool:
        """Whether processes whose line begins so are there, and stand still with their groups.

        One that was just starting another (vfork) waits in state D until that goes on.
        """
        lines = self.exec(name, "ps", "-ww", "-eo", "ppid=,pid=,pgid=,stat=,args=").stdout
        rows = [line.split(None, 4) for line in lines.splitlines()]
        groups = {row[2] for row in rows if row[4].startswith(command)}
        parents = {row[0] for row in rows if row[3][0] == "T"}
        return bool(groups) and all(
            row[3][0] in "TZ" or (row[3][0] == "D" and row[1] in parents)
            for row in rows
            if row[2] in groups
        )

    def is_up(self, name: str) -> bool:
        holder = self._holders.get(name)
        return holder is not None and holder.poll() is None

    def kill(self, name: str) -> None:
        """The host's power goes: nothing in it gets to clean up."""
        holder = self._holders.pop(name, None)
        if holder is None:
            return
        # unshare waits for the first process, which the kernel lets end as the last of all.
        if holder.poll() is None:
            children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split()
            os.kill(int(children[0]) if children else holder.pid, signal.SIGKILL)
        holder.wait()

    def revive(self, name: str) -> None:
        if self.is_up(name):
            raise LabError(f"host {name} is up")
        self._boot(name)
        self._await(name)

    def first_process(self, name: str) -> int:
        """The pid, as this machine counts, of the host's pid 1."""
        if not self.is_up(name):
            raise LabError(f"host {name} is down")
        pid = self._holders[name].pid
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])

    def _prepare(self, name: str, key: Path) -> None:
        folder = self.folder / name
        ssh = folder / "ssh"
        ssh.mkdir(parents=True, mode=0o700)
        hostkey = folder / "hostkey"
        _check(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(hostkey)])
        (folder / "sshd_config").write_text(_SSHD.format(folder=folder, address=self.address[name]))
        for at in ("id_ed25519", "id_ed25519.pub", "authorized_keys"):
            shutil.copy(key if at == "id_ed25519" else key.with_suffix(".pub"), ssh / at)
        (ssh / "config").write_text("Host *\nStrictHostKeyChecking no\nLogLevel ERROR\n")
        for path in ssh.iterdir():
            path.chmod(0o600)

    def _boot(self, name: str) -> None:
        (self.folder / name / "ready").unlink(missing_ok=True)
        spaces = ["--net", "--mount", "--uts", "--pid", "--ipc", "--propagation", "private"]
        argv = ["unshare", *spaces, "--fork", "--kill-child", "--mount-proc", "bash", "-c"]
        # The init waits on its standard input until the network card is there. It also gets the
        # checkout's path there: in its argument list, which lasts as long as the host, tests that
        # look for processes with "podwright" in their line would find it in a folder of that name.
        script = "IFS= read -r checkout; " + _INIT
        with (self.folder / name / "log").open("wb") as log:
            holder = subprocess.Popen(
                [*argv, script, "init", name, str(self.folder)],
                env=self._environment(),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._holders[name] = holder
        children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children")
        pid = poll(f"first process of {name}", lambda: children.read_text().split())[0]
        card = f"v{self.address[name].rpartition('.')[2]}"
        self._in_switch(["ip", "link", "del", card], check=False)  # of the host before the crash
        self._in_switch(["ip", "link", "add", card, "type", "veth", "peer", "name", "eth0"])
        self._in_switch(["ip", "link", "set", "eth0", "netns", pid])
        self._in_switch(["ip", "link", "set", card, "master", "br0", "up"])
        inside = Inside(int(pid), spaces="-n")
        # The same card after a crash, as with a real host: neighbours remember its address.
        mac = f"02:00:00:00:00:{int(self.address[name].rpartition('.')[2]):02x}"
        for step in (
            ["link", "set", "eth0", "address", mac],
            ["address", "add", f"{self.address[name]}/24", "dev", "eth0"],
            ["link", "set", "eth0", "up"],
            ["link", "set", "lo", "up"],
        ):
            _check(inside.wrap(["ip", *step]))
        assert holder.stdin is not None
        holder.stdin.write(os.fsencode(CHECKOUT) + b"\n")
        holder.stdin.close()

    def _await(self, name: str) -> None:
        ready = self.folder / name / "ready"

        def booted() -> bool:
            if self._holders[name].poll() is not None:
                raise LabError(f"{name}: {(self.folder / name / 'log').read_text()}")
            return ready.exists()

        poll(f"boot of {name}", booted)

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "PODWRIGHT_LAB": str(self.folder)}

    def _hold(self, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            argv, env=self._environment(), stdin=subprocess.DEVNULL, start_new_session=True
        )

    def _in_switch(self, argv: Sequence[str], *, check: bool = True) -> None:
        assert self._switch is not None
        _check(Inside(self._switch.pid, spaces="-n").wrap(argv), check=check)


def _check(argv: Sequence[str], *, check: bool = True) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        raise LabError(f"{' '.join(argv)}: {done.stderr.strip()}")
