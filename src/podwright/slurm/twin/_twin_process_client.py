"""The owner's side of a twin: starts the guardian, and sends requests to its serving process.

The guardian (`_cell_process`) is a script of its own. `NamespaceCell` has it make namespaces, in
which nobody else reaches the twin. `PrivateCell` is for an ordinary user to whom the kernel grants
none: a folder that the user alone may enter, with the key of a munged of its own, and a slurmctld
that listens on the loopback device. Tests put a recorded dialogue in place of `TwinCell`.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pwd
import random
import select
import shutil
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from podwright.errors import Internal, TimedOut, Unavailable
from podwright.slurm.site.command_result import CommandResult

_GUARDIAN_SCRIPT = Path(__file__).with_name("_cell_process.py")
#: The users that root's twins run as. No account has these numbers. Each twin takes one at random.
_FREE_UIDS = range(0x60000000, 0x60FFFFFF)


_PRIVATE_ROOT = "private"  # in place of a root folder, as _cell_process has it
_MUNGE_KEY_BYTES = 1024
_MUNGED_START_LIMIT_S = 20.0  # seconds


class CellUser(tuple[int, int]):
    """The (uid, gid) that a command acts as, in the view of the twin's Slurm."""

    __slots__ = ()


SLURM_UID = 64030  # as in Debian's package; used in the twin alone
CONTROLLER_USER = CellUser((SLURM_UID, SLURM_UID))


@dataclass(frozen=True)
class TwinPlace:
    """Where the Slurm of a twin runs.

    folder: the twin's folder. user: SlurmUser. controller_port: the port of slurmctld. node_port:
    the port of every node; 0 where each has its own. munge: the socket of the twin's own munged,
    without which it runs in its own namespaces and needs no credentials.
    """

    folder: str = "/run/twin"  # as _cell_process has it
    user: str = str(SLURM_UID)
    controller_port: int = 6817
    node_port: int = 0
    munge: str = ""


#: What gives a user namespaces.
NAMESPACES_ADVICE = (
    "Run as root, or let users make user namespaces (sysctl user.max_user_namespaces)"
)


class TwinCell(Protocol):
    """What a twin needs of its namespaces. Paths are below the twin's folder."""

    place: TwinPlace

    def check_private(self) -> None: ...
    def write(self, files: Mapping[str, str], links: Mapping[str, str]) -> None: ...
    def cover(self, name: str, path: str) -> bool: ...
    def listen(self, ports: Sequence[int]) -> None: ...
    def silence(self, ports: Sequence[int]) -> None: ...
    def folder(self, name: str) -> None: ...
    def remove(self, name: str) -> None: ...
    def copy(self, source: str, target: str) -> None: ...
    def read(self, name: str) -> str: ...
    def daemon(
        self, name: str, argv: Sequence[str], account: CellUser, environment: Mapping[str, str]
    ) -> None: ...
    def stop(self, name: str, number: int, limit: float) -> int: ...
    def alive(self, name: str) -> bool: ...
    def run(
        self,
        argv: Sequence[str],
        account: CellUser,
        environment: Mapping[str, str],
        stdin: str = "",
        limit: float = 60,
    ) -> CommandResult: ...
    def close(self) -> None: ...


class NamespaceCell:
    """A twin's own namespaces. Raises Unavailable where this machine grants none."""

    def __init__(self, root: str = "/") -> None:
        self.place = TwinPlace()
        free_uid = random.SystemRandom().choice(_FREE_UIDS)
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-I",
                "-S",
                str(_GUARDIAN_SCRIPT),
                str(os.getpid()),
                root,
                str(free_uid),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
        )
        self._folder = ""
        try:
            reply = self._receive_reply(30)
            setup_error = str(reply.get("setup", "the guardian ended"))
            self._folder = str(reply.get("folder", ""))
        except (Unavailable, TimedOut) as error:
            setup_error = error.problem
        if setup_error:
            self.close()
            raise Unavailable(
                f"a twin of the controller needs namespaces of its own: {setup_error}",
                would_work=NAMESPACES_ADVICE,
            )

    def check_private(self) -> None:
        """Raise Unavailable where another machine could reach the twin's slurmctld."""

    @property
    def pid(self) -> int:
        """The process number of the guardian."""
        return self._process.pid

    def write(self, files: Mapping[str, str], links: Mapping[str, str]) -> None:
        self._send_request("write", 60, files=dict(files), links=dict(links))

    def cover(self, name: str, path: str) -> bool:
        return bool(self._send_request("cover", name=name, path=path))

    def listen(self, ports: Sequence[int]) -> None:
        self._send_request("listen", ports=list(ports))

    def silence(self, ports: Sequence[int]) -> None:
        self._send_request("silence", ports=list(ports))

    def folder(self, name: str) -> None:
        self._send_request("folder", name=name)

    def remove(self, name: str) -> None:
        self._send_request("remove", 60, name=name)

    def copy(self, source: str, target: str) -> None:
        self._send_request("copy", 60, source=source, target=target)

    def read(self, name: str) -> str:
        return str(self._send_request("read", name=name))

    def daemon(
        self, name: str, argv: Sequence[str], account: CellUser, environment: Mapping[str, str]
    ) -> None:
        self._send_request(
            "daemon",
            name=name,
            argv=list(argv),
            uid=account[0],
            gid=account[1],
            environment=dict(environment),
        )

    def stop(self, name: str, number: int, limit: float) -> int:
        return int(self._send_request("stop", limit + 20, name=name, number=number, limit=limit))

    def alive(self, name: str) -> bool:
        return bool(self._send_request("alive", name=name))

    def run(
        self,
        argv: Sequence[str],
        account: CellUser,
        environment: Mapping[str, str],
        stdin: str = "",
        limit: float = 60,
    ) -> CommandResult:
        fields = self._send_request(
            "run",
            limit + 20,
            argv=list(argv),
            stdin=stdin,
            uid=account[0],
            gid=account[1],
            environment=dict(environment),
            limit=limit,
        )
        return CommandResult(fields["code"], fields["out"], fields["err"])

    def close(self) -> None:
        """End every process of the namespaces, and return when they are gone."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream:
                with contextlib.suppress(OSError):
                    stream.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _send_request(self, request: str, patience: float = 20, /, **arguments: Any) -> Any:
        request_json = json.dumps({"request": request, "arguments": arguments}).encode()
        with self._lock:
            assert self._process.stdin
            try:
                self._process.stdin.write(struct.pack("!I", len(request_json)) + request_json)
                self._process.stdin.flush()
            except (OSError, ValueError) as error:
                raise Unavailable("the twin of the controller has ended") from error
            reply = self._receive_reply(patience)
        if "error" in reply:
            raise Internal(f"the twin could not {request}: {reply['error']}")
        return reply.get("value")

    def _receive_reply(self, limit: float) -> dict[str, Any]:
        deadline = time.monotonic() + limit
        size = struct.unpack("!I", self._read(4, deadline))[0]
        return dict(json.loads(self._read(size, deadline)))

    def _read(self, byte_count: int, deadline: float) -> bytes:
        """Return exactly `byte_count` bytes of the reply. A guardian that does not answer in time
        is killed.
        """
        assert self._process.stdout
        stdout_fd = self._process.stdout.fileno()
        received = b""
        while len(received) < byte_count:
            seconds_left = deadline - time.monotonic()
            if seconds_left <= 0 or not select.select([stdout_fd], [], [], seconds_left)[0]:
                self._process.kill()
                raise TimedOut("the twin of the controller does not answer")
            chunk = os.read(stdout_fd, byte_count - len(received))
            if not chunk:
                raise Unavailable("the twin of the controller has ended")
            received += chunk
        return received


class PrivateCell(NamespaceCell):
    """A twin without namespaces: a folder, a munged and a loopback port of the calling user.

    The key of munged lies in the folder, which no other user may enter, so slurmctld answers nobody
    else. Raises Unavailable where no such twin can be had: for root, for a user without a name or
    a Slurm in another root folder, and where munged is missing.
    """

    def __init__(self, root: str = "/") -> None:
        munged_path = shutil.which("munged", path=f"/usr/sbin:/usr/local/sbin:{os.environ['PATH']}")
        try:
            user_name = pwd.getpwuid(os.getuid()).pw_name
        except KeyError:
            user_name = ""
        if root != "/" or not os.getuid() or not user_name or not munged_path:
            raise Unavailable(
                "a twin without namespaces needs munged, and an ordinary user with a name and the "
                "Slurm that is installed on this machine",
                would_work="Install munge",
            )
        super().__init__(_PRIVATE_ROOT)
        munge_socket = f"{self._folder}/munge.socket"
        try:
            free_ports = self._send_request("free_ports", count=2)
            self.place = TwinPlace(
                self._folder, user_name, free_ports[0], free_ports[1], munge_socket
            )
            munge_key = base64.b64encode(os.urandom(_MUNGE_KEY_BYTES)).decode()
            self.write({"munge.key": munge_key}, {})
            self._start_munged(munged_path, munge_socket)
        except BaseException:
            self.close()
            raise

    def _start_munged(self, munged_path: str, munge_socket: str) -> None:
        munged_files = {"key-file": "munge.key", "pid-file": "munge.pid", "seed-file": "munge.seed"}
        argv = [
            munged_path,
            "--foreground",
            "--force",
            "--num-threads=2",
            f"--socket={munge_socket}",
        ]
        argv += [f"--{option}={self._folder}/{name}" for option, name in munged_files.items()]
        self.daemon("munged", argv, CONTROLLER_USER, {"PATH": os.environ["PATH"]})
        deadline = time.monotonic() + _MUNGED_START_LIMIT_S
        while not Path(munge_socket).exists():
            if not self.alive("munged") or time.monotonic() > deadline:
                log_lines = self.read("log/munged").splitlines() or ["no reason given"]
                raise Unavailable(f"the twin's munged does not start: {log_lines[-1]}")
            time.sleep(0.02)

    def cover(self, name: str, path: str) -> bool:
        return False  # the machine's own users and hosts hold

    def check_private(self) -> None:
        if self._send_request("exposed", port=self.place.controller_port):
            raise Unavailable(
                "without namespaces, a twin's slurmctld must listen on the loopback device alone; "
                "Slurm binds it to the address of this machine's name",
                would_work=NAMESPACES_ADVICE,
            )

    def daemon(
        self, name: str, argv: Sequence[str], account: CellUser, environment: Mapping[str, str]
    ) -> None:
        self._check_account(account)
        super().daemon(name, argv, account, environment)

    def run(
        self,
        argv: Sequence[str],
        account: CellUser,
        environment: Mapping[str, str],
        stdin: str = "",
        limit: float = 60,
    ) -> CommandResult:
        self._check_account(account)
        return super().run(argv, account, environment, stdin, limit)

    def _check_account(self, account: CellUser) -> None:
        if account[0] not in (SLURM_UID, os.getuid()):
            raise Unavailable(
                "without namespaces, a twin is asked as the user who runs it",
                would_work=NAMESPACES_ADVICE,
            )


def open_cell(root: str) -> TwinCell:
    """Return namespaces of the twin's own, or else a private folder.

    Raises Unavailable where this machine grants neither.
    """
    try:
        return NamespaceCell(root)
    except Unavailable as namespace_error:
        try:
            return PrivateCell(root)
        except Unavailable as private_error:
            raise Unavailable(
                f"{namespace_error.problem}; {private_error.problem}", would_work=NAMESPACES_ADVICE
            ) from private_error
