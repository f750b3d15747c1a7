"""The process that owns a twin: its namespaces, its files and its daemons. Runs as a script.

A twin lives in namespaces of its own: network, mounts and process numbers. Its files are in a
tmpfs that no other process sees. Process 1 of the namespaces serves requests on its standard
input. The kernel therefore cleans up, whatever is killed:

- Process 1 ends: the kernel kills every process of the namespace, and with the last of them the
  network, the mounts and the tmpfs are gone.
- The watcher (the parent of process 1) ends: process 1 gets SIGKILL (PR_SET_PDEATHSIG).
- The owner (the process that started the watcher) ends: the watcher sees it on a pidfd and kills
  process 1. Process 1 also sees the end of its standard input.

Every process of Slurm runs in a nested user namespace that maps one user: the user as whom it is
to act. The kernel's own user is that of the caller, or, where root started the twin, a number that
no account has. Another user of the machine therefore can neither reach the network of the twin,
nor trace its processes, nor read its files.

Where the kernel grants no user namespaces, an ordinary user's twin has a folder of its own instead
("private" in place of the root folder as an argument). Then no kernel object cleans up, and the two
processes do it for each other. Both are subreapers, so every process of the twin, also one whose
parent has ended, is below them. Whichever of the two sees the end of the other, or of the owner,
kills all processes below it and removes the folder.

The script needs the standard library alone and imports nothing of Podwright, so that it starts
quickly and under any working directory. Messages are JSON with a length of four bytes before it.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import fcntl
import functools
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

NEW_NS, NEW_USER, NEW_PID, NEW_NET = 0x20000, 0x10000000, 0x20000000, 0x40000000
MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 4096, 16384, 1 << 18
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36
SIOCSIFADDR, SIOCSIFFLAGS, SIOCSIFNETMASK = 0x8916, 0x8914, 0x891C
SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "ppc64le": 203}.get(os.uname().machine, 41)
MNT_DETACH = 2
TWIN_FOLDER = Path("/run/twin")
PRIVATE = "private"
TCP_LISTEN_STATE = "0A"  # the state of a socket in /proc/net/tcp
LARGEST_MESSAGE_BYTES = 256 << 20  # bytes of one message

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


class SetupError(Exception):
    """The namespaces cannot be made; the text says which step failed."""


def checked(result: int, step: str) -> None:
    """Raise SetupError where a call of libc returned an error."""
    if result != 0:
        raise SetupError(f"{step}: {os.strerror(ctypes.get_errno())}")


def mount(source: str, target: str, fs_type: str, flags: int, mount_data: str = "") -> None:
    checked(
        libc.mount(source.encode(), target.encode(), fs_type.encode(), flags, mount_data.encode()),
        f"mount {target}",
    )


def map_ids(inner_uid: int, inner_gid: int, uid: int, gid: int) -> None:
    """Map one user and one group of this process's new user namespace."""
    for map_file, mapping in (
        ("setgroups", "deny"),
        ("uid_map", f"{inner_uid} {uid} 1"),
        ("gid_map", f"{inner_gid} {gid} 1"),
    ):
        map_fd = os.open(f"/proc/self/{map_file}", os.O_WRONLY)
        try:
            os.write(map_fd, mapping.encode())
        finally:
            os.close(map_fd)


def act_as(kernel_uid: int, uid: int, gid: int) -> Callable[[], None]:
    """Return what a new process does before it starts a program, so that it runs as uid and gid.

    kernel_uid: the kernel's user of the process. Where it differs from this process's user, this
    process is root and the new one first becomes `kernel_uid`.
    """

    def become() -> None:
        if os.getuid() != kernel_uid:
            os.setgroups([])
            os.setresgid(kernel_uid, kernel_uid, kernel_uid)
            os.setresuid(kernel_uid, kernel_uid, kernel_uid)
            # After a change of user, /proc/self/uid_map belongs to root, unless the process is
            # dumpable. No other process has the user `kernel_uid`, so none may trace this one.
            libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
        group = os.getgid()
        checked(libc.unshare(NEW_USER), "unshare")
        map_ids(uid, gid, kernel_uid, group)

    return become


def enter(root: str, kernel_uid: int) -> None:
    """Set up the mounts and the network of process 1. root: the folder of the system that has
    Slurm.
    """
    mount("none", "/", "", MS_REC | MS_PRIVATE)
    new_root = root.rstrip("/")
    if new_root:
        mount(new_root, new_root, "", MS_BIND | MS_REC)  # only a mount point can become the root
        for folder in ("dev", "sys"):
            mount(f"/{folder}", f"{new_root}/{folder}", "", MS_BIND | MS_REC)
    try:
        mount("proc", f"{new_root}/proc", "proc", MS_NOSUID | MS_NODEV)
    except SetupError:
        # In a container whose /proc is partly hidden, no other /proc may be mounted.
        if new_root:
            mount("/proc", f"{new_root}/proc", "", MS_BIND | MS_REC)
    if new_root:
        # chroot is not enough: the kernel grants no user namespaces inside it.
        os.chdir(new_root)
        checked(libc.syscall(SYS_PIVOT_ROOT, b".", b"."), "pivot_root")
        checked(libc.umount2(b".", MNT_DETACH), "umount")
    os.chdir("/")
    mount("tmpfs", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=2g")
    TWIN_FOLDER.mkdir()
    (TWIN_FOLDER / "log").mkdir()
    if os.getuid() != kernel_uid:
        os.chown(TWIN_FOLDER, kernel_uid, kernel_uid)
        os.chown("/run", kernel_uid, kernel_uid)
    network()


def network() -> None:
    """Bring up the loopback device, with a second address.

    Without an address other than 127.0.0.1, getaddrinfo finds no address for AI_ADDRCONFIG.
    """

    def request(name: str, address: str = "") -> bytes:
        if address:
            return struct.pack("16sHH4s8x", name.encode(), socket.AF_INET, 0, packed(address))
        return struct.pack("16sH14x", name.encode(), 1 | 64)  # IFF_UP, IFF_RUNNING

    def packed(address: str) -> bytes:
        return socket.inet_aton(address)

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SIOCSIFFLAGS, request("lo"))
        fcntl.ioctl(control, SIOCSIFADDR, request("lo:1", "192.0.2.1"))
        fcntl.ioctl(control, SIOCSIFNETMASK, request("lo:1", "255.255.255.255"))


class TwinProcess:
    """The process that serves the owner: process 1 of the namespaces, or the one that has the
    private folder. Each public method is a request of that name by its owner.

    folder: the twin's folder. become: returns what a new process does before it starts a program
    as a uid and gid.
    """

    def __init__(
        self, kernel_uid: int, folder: Path, become: Callable[[int, int], Callable[[], None]]
    ) -> None:
        self._own = kernel_uid
        self._folder = folder
        self._become = become
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._listening: dict[int, socket.socket] = {}

    def write(self, files: dict[str, str], links: dict[str, str]) -> None:
        """Writes files (base64) and symbolic links, by their path below the twin's folder."""
        for relative_path, text in files.items():
            path = self._path_with_parents(relative_path)
            path.write_bytes(base64.b64decode(text))
            path.chmod(0o600)
            self._give_to_owner(path)
        for relative_path, target in links.items():
            path = self._path_with_parents(relative_path)
            if not path.is_symlink():
                path.symlink_to(target)

    def cover(self, name: str, path: str) -> bool:
        """Puts a file of the twin in place of a file of the system, for the twin alone."""
        (self._folder / name).chmod(0o644)
        if not Path(path).exists():
            return False
        mount(str(self._folder / name), path, "", MS_BIND)
        return True

    def listen(self, ports: list[int]) -> None:
        """Opens ports that accept connections and never answer."""
        for port in set(ports) - set(self._listening):
            listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1" if self._folder != TWIN_FOLDER else "", port))
            listener.listen(4096)
            self._listening[port] = listener

    def free_ports(self, count: int) -> list[int]:
        """Returns ports of the loopback device that nobody uses."""
        with contextlib.ExitStack() as stack:
            sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
            for probe in sockets:
                probe.bind(("127.0.0.1", 0))
            return [probe.getsockname()[1] for probe in sockets]

    def exposed(self, port: int) -> bool:
        """Whether a process listens on the port at an address other than 127.0.0.0/8."""
        socket_rows = [
            line.split()
            for name in ("tcp", "tcp6")
            for line in read_lines(Path("/proc/net", name))[1:]
        ]
        listeners = [row[1].split(":") for row in socket_rows if row[3] == TCP_LISTEN_STATE]
        # The kernel prints IPv4 addresses with their first byte last.
        return any(
            int(port_hex, 16) == port and not (len(address_hex) == 8 and address_hex.endswith("7F"))
            for address_hex, port_hex in listeners
        )

    def silence(self, ports: list[int]) -> None:
        """Closes ports that `listen` opened."""
        for port in ports:
            if port in self._listening:
                self._listening.pop(port).close()

    def daemon(
        self, name: str, argv: list[str], uid: int, gid: int, environment: dict[str, str]
    ) -> None:
        """Starts a process that stays. Its output is log/NAME below the twin's folder."""
        path = self._folder / "log" / name
        with path.open("wb") as file:
            self._daemons[name] = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=self._folder,
                preexec_fn=self._become(uid, gid),
            )

    def stop(self, name: str, number: int, limit: float) -> int:
        """Sends a signal to a daemon and waits for its end; SIGKILL after `limit` seconds."""
        process = self._daemons.pop(name)
        process.send_signal(number)
        try:
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def alive(self, name: str) -> bool:
        """Return whether a daemon still runs."""
        return name in self._daemons and self._daemons[name].poll() is None

    def run(
        self,
        argv: list[str],
        stdin: str,
        uid: int,
        gid: int,
        environment: dict[str, str],
        limit: float,
    ) -> dict[str, Any]:
        """Runs a command to its end. The code is 124 if it was killed after `limit` seconds."""
        command_process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd=self._folder,
            preexec_fn=self._become(uid, gid),
        )
        try:
            stdout, stderr = command_process.communicate(stdin.encode(), limit)
            exit_code = command_process.returncode
        except subprocess.TimeoutExpired:
            command_process.kill()
            stdout, stderr = command_process.communicate()
            exit_code = 124
        return {
            "code": exit_code,
            "out": stdout.decode(errors="replace"),
            "err": stderr.decode(errors="replace"),
        }

    def remove(self, name: str) -> None:
        """Removes a folder of the twin, where there is one."""
        shutil.rmtree(self._folder / name, ignore_errors=True)

    def copy(self, source: str, target: str) -> None:
        """Replaces a folder of the twin by a copy of another."""
        shutil.rmtree(self._folder / target, ignore_errors=True)
        shutil.copytree(self._folder / source, self._folder / target)
        self._give_to_owner(self._folder / target)
        for path in (self._folder / target).rglob("*"):
            self._give_to_owner(path)

    def folder(self, name: str) -> None:
        """Makes a folder below the twin's folder."""
        self._path_with_parents(f"{name}/x")

    def read(self, name: str) -> str:
        """The text of a file below the twin's folder; empty where there is none."""
        try:
            return (self._folder / name).read_text(errors="replace")
        except OSError:
            return ""

    def reap(self) -> None:
        """Collects the children of processes that ended before them."""
        pids = {process.pid for process in self._daemons.values()}
        while True:
            try:
                child = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if child is None or child.si_pid in pids:
                return
            os.waitpid(child.si_pid, os.WNOHANG)

    def _path_with_parents(self, relative_path: str) -> Path:
        path = self._folder / relative_path
        missing_folders = [parent for parent in path.parents if not parent.exists()]
        path.parent.mkdir(parents=True, exist_ok=True)
        for folder in missing_folders:
            self._give_to_owner(folder)
        return path

    def _give_to_owner(self, path: Path) -> None:
        if os.getuid() != self._own:
            os.chown(path, self._own, self._own, follow_symlinks=False)


def read_lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def receive() -> dict[str, Any] | None:
    """Return the next request, or None at the end of the input."""
    prefix = sys.stdin.buffer.read(4)
    if len(prefix) < 4:
        return None
    size = struct.unpack("!I", prefix)[0]
    request_json = sys.stdin.buffer.read(size) if size <= LARGEST_MESSAGE_BYTES else b""
    return dict(json.loads(request_json)) if size and len(request_json) == size else None


def send(message: dict[str, Any]) -> None:
    message_json = json.dumps(message).encode()
    sys.stdout.buffer.write(struct.pack("!I", len(message_json)) + message_json)
    sys.stdout.buffer.flush()


def serve(kernel_uid: int, folder: Path, become: Callable[[int, int], Callable[[], None]]) -> None:
    """Answer the owner's requests until its input ends."""
    send({"setup": "", "folder": str(folder)})
    process = TwinProcess(kernel_uid, folder, become)
    while (request := receive()) is not None:
        try:
            method = getattr(process, request["request"])
            send({"value": method(**request["arguments"])})
        except (OSError, KeyError, SetupError, subprocess.SubprocessError) as error:
            send({"error": f"{type(error).__name__}: {error}"})
        process.reap()


def serve_in_namespaces(root: str, kernel_uid: int) -> None:
    """Run as process 1 until its input ends."""
    checked(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")
    become = functools.partial(act_as, kernel_uid)
    try:
        enter(root, kernel_uid)
        subprocess.run(["/bin/true"], preexec_fn=become(kernel_uid, kernel_uid), check=False)
    except (SetupError, OSError) as error:
        send({"setup": str(error)})
        return
    except subprocess.SubprocessError:
        send({"setup": "a second user namespace inside the first is not granted"})
        return
    serve(kernel_uid, TWIN_FOLDER, become)


def serve_privately(folder: Path) -> None:
    """Serve the owner from a folder of its own; end everything when its input or the watcher
    ends.
    """

    def become(uid: int, gid: int) -> Callable[[], None]:
        return lambda: checked(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")

    signal.signal(signal.SIGUSR1, lambda number, frame: sys.exit(1))
    checked(libc.prctl(PR_SET_PDEATHSIG, signal.SIGUSR1, 0, 0, 0), "prctl")
    checked(libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl")
    try:
        (folder / "log").mkdir()
        serve(os.getuid(), folder, become)
    finally:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        end_all(folder)


def end_all(folder: Path) -> None:
    """Kill every process below this one, and remove the folder."""
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            break
        for pid in children(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    shutil.rmtree(folder, ignore_errors=True)


def children(pid: int) -> list[int]:
    """The processes below one."""
    descendants = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        for child_pid in " ".join(read_lines(file)).split():
            descendants += [int(child_pid), *children(int(child_pid))]
    return descendants


def watch(owner_pidfd: int, child_pid: int) -> None:
    """Wait for the end of the owner or of the serving process, whichever comes first, and end the
    latter.
    """
    poller = select.poll()
    with contextlib.suppress(ProcessLookupError):
        poller.register(owner_pidfd, select.POLLIN)
        poller.register(os.pidfd_open(child_pid), select.POLLIN)
        poller.poll()
    with contextlib.suppress(ProcessLookupError):
        os.kill(child_pid, signal.SIGKILL)
    os.waitpid(child_pid, 0)


def main() -> int:
    """Start the serving process and watch. Arguments: the owner's process number, the root folder
    of Slurm (or PRIVATE), and a free user number for root.
    """
    owner_pidfd = os.pidfd_open(int(sys.argv[1]))
    if os.getppid() != int(sys.argv[1]):
        return 1
    root, free_uid = sys.argv[2], int(sys.argv[3])
    os.umask(0o077 if root == PRIVATE else 0o022)
    uid, gid = os.getuid(), os.getgid()
    try:
        if root == PRIVATE:
            checked(libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl")
            folder = Path(tempfile.mkdtemp(prefix="podwright-twin."))
        else:
            if uid:
                checked(libc.unshare(NEW_USER), "a user namespace")
                map_ids(uid, gid, uid, gid)
            checked(libc.unshare(NEW_NS | NEW_PID | NEW_NET), "namespaces of mounts and network")
    except (SetupError, OSError) as error:
        send({"setup": str(error)})
        return 1
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    child_pid = os.fork()
    if child_pid == 0:
        if root == PRIVATE:
            serve_privately(folder)
        else:
            serve_in_namespaces(root, uid or free_uid)
        os._exit(0)
    os.close(0)
    os.close(1)
    watch(owner_pidfd, child_pid)
    if root == PRIVATE:
        end_all(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
