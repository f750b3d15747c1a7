"""Who owns a socket path: one server at a time, by a lock that ends with its process.

The lock file lies beside the file that it guards, and names the process that holds it. It is taken
before anything else is touched, so that two servers never use one socket or one store at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
from pathlib import Path

from podwright.errors import AlreadyExists, Denied, InvalidRequest, Unavailable

_BACKLOG = 1024
_LONGEST_PATH_BYTES = 107  # bytes of a Unix socket's path on Linux (sockaddr_un)


class Lock:
    """The right to a path, held until `release` or the end of the process.

    locks_inode: also lock the file itself, whatever path leads to it: links and mounts give it
    other names.
    """

    def __init__(self, path: Path, subject: str, *, locks_inode: bool = False) -> None:
        self.path = path.with_name(path.name + ".lock")
        self._guarded_file = path if locks_inode else None
        self._subject = subject
        self._file = self._inode_descriptor = -1

    def take(self) -> None:
        """Take the lock. Raises wire.AlreadyExists, which names the process that has it.

        `release` removes the lock file. A process that opened the file before that would lock a
        file without a name, while another process creates and locks a new file at the same path.
        After locking, this method therefore checks that the path still names the locked file, and
        starts again if it does not.
        """
        while True:
            try:
                open_flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                descriptor = os.open(self.path, open_flags, 0o600)
            except OSError as error:
                raise _unusable_path(self.path, error) from None
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_same_file(descriptor, self.path):
                    break
            except BlockingIOError:
                holder_pid = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
                os.close(descriptor)
                process_text = f" (process {holder_pid})" if holder_pid else ""
                raise AlreadyExists(
                    f"another server{process_text} uses {self._subject}",
                    would_work="use that one, end it, or name another place",
                    holder=holder_pid,
                ) from None
            os.close(descriptor)  # its last holder removed the file between the two steps
        self._file = descriptor
        try:
            self.hold()
        except BaseException:
            self.release()
            raise
        with contextlib.suppress(OSError):  # it is for people; a full disk has no room for it
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)

    def hold(self) -> None:
        """Lock the file itself too, once it exists. Raises wire.AlreadyExists.

        It stays open: closing any descriptor of this file would release SQLite's own locks.
        """
        if self._guarded_file is None or self._inode_descriptor >= 0:
            return
        try:
            descriptor = os.open(self._guarded_file, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        except OSError as error:
            raise _unusable_path(self._guarded_file, error) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise AlreadyExists(
                f"another server uses {self._subject}, by another path",
                would_work="use that one, end it, or name another place",
            ) from None
        self._inode_descriptor = descriptor

    def release(self) -> None:
        """Release the lock, and remove its file.

        The file is removed while the lock is still held, so that it cannot be another holder's
        file.
        """
        if self._inode_descriptor >= 0:
            os.close(self._inode_descriptor)
            self._inode_descriptor = -1
        if self._file >= 0:
            self.path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = -1


class SocketPlace:
    """A Unix socket that this server owns.

    socket_mode: of the socket, 0600 or 0666. private_folder: its folder must belong to this user
    and be closed to others.
    """

    def __init__(
        self, path: Path, *, socket_mode: int = 0o600, private_folder: bool = False
    ) -> None:
        self.path = path
        self._mode = socket_mode
        self._private = private_folder
        self._lock = Lock(path, f"the socket {path}")
        self._socket: socket.socket | None = None

    def take(self) -> None:
        """Take the path, before anything listens there.

        Raises wire.InvalidRequest, wire.Denied, wire.Unavailable or wire.AlreadyExists.
        """
        if len(os.fsencode(self.path)) > _LONGEST_PATH_BYTES:
            raise InvalidRequest(
                f"the socket path {self.path} is too long",
                would_work=f"use a path of up to {_LONGEST_PATH_BYTES} bytes",
            )
        prepare_folder(self.path.parent, private=self._private)
        self._lock.take()
        try:
            self._remove_stale()
        except BaseException:
            self._lock.release()
            raise

    def listen(self) -> socket.socket:
        """Return the listening socket. It has its mode before the first caller can connect."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(str(self.path))
            os.chmod(self.path, self._mode)
            listener.listen(_BACKLOG)
            listener.setblocking(False)
        except OSError as error:
            listener.close()
            raise _unusable_path(self.path, error) from None
        self._socket = listener
        return listener

    def hide(self) -> None:
        """Remove the socket, so that new callers find none. The path stays this server's."""
        if self._socket is not None:
            self.path.unlink(missing_ok=True)

    def release(self) -> None:
        """Stop listening, and give up the path."""
        self.hide()
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._lock.release()

    def _remove_stale(self) -> None:
        try:
            if not stat.S_ISSOCK(self.path.lstat().st_mode):
                raise InvalidRequest(
                    f"{self.path} is there and is not a socket", would_work="name another path"
                )
        except FileNotFoundError:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1.0)
            try:
                probe.connect(str(self.path))
            except (ConnectionRefusedError, FileNotFoundError):
                self.path.unlink(missing_ok=True)
                return
            except OSError as error:
                raise _unusable_path(self.path, error) from None
        raise AlreadyExists(
            f"something answers at {self.path}, though no server of ours holds it",
            would_work="end it, or name another socket",
        )


def prepare_folder(folder: Path, *, folder_mode: int = 0o755, private: bool = False) -> None:
    """Make the folder of a socket or store. private: 0700, and its owner is checked.

    Raises wire.Denied when the folder is another's or open to others, wire.Unavailable when it
    cannot be made.
    """
    try:
        folder.mkdir(mode=0o700 if private else folder_mode, parents=True, exist_ok=True)
        folder_status = folder.lstat()
    except OSError as error:
        raise _unusable_path(folder, error) from None
    if private and (
        not stat.S_ISDIR(folder_status.st_mode)
        or folder_status.st_uid != os.geteuid()
        or stat.S_IMODE(folder_status.st_mode) & 0o077
    ):
        raise Denied(
            f"the folder {folder} is not private to you",
            would_work=f"remove it, or: chmod 0700 {folder}",
        )


def _is_same_file(descriptor: int, path: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    return False


def _unusable_path(path: Path, error: OSError) -> Unavailable:
    return Unavailable(f"cannot use {path}: {error.strerror}", would_work="name another place")
