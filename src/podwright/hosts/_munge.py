"""MUNGE: hosts that share one key vouch for each other's users, as Slurm's hosts do.

libmunge is loaded when a process first needs it, so installing Podwright does not need it. A
credential carries a payload and can be decoded once. A server that binds the payload to a request
therefore binds the caller to that request as well.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from podwright.hosts._errors import HostsError

_LIBRARY: Final = "libmunge.so.2"
_SOCKET_OPTION: Final = 8  # MUNGE_OPT_SOCKET of munge.h, since munge 0.5
#: The munge_err_t of credentials that are well formed and no longer valid.
_SPENT_REASONS: Final = {
    15: "it has expired",
    16: "it is from the future",
    17: "it was shown before",
}
#: More bytes than any credential of Podwright's needs.
MAX_CREDENTIAL_BYTES: Final = 64 * 1024


class MungeError(HostsError):
    """MUNGE is absent, does not answer, or does not accept a credential.

    absent: MUNGE cannot be asked, whatever the credential is.
    """

    def __init__(self, problem: str, *, absent: bool = False) -> None:
        super().__init__(problem)
        self.absent = absent


class Vouched(NamedTuple):
    """What a credential proves: the user who made it, and its payload."""

    uid: int
    gid: int
    payload: bytes


class Vouches(Protocol):
    """Makes and checks credentials: `Munge`, or a test's `FakeMunge`."""

    def encode(self, payload: bytes) -> str:
        """Return a credential of this process's user for a payload. Raises MungeError."""

    def decode(self, credential: str) -> Vouched:
        """Return what a credential proves. It can be decoded only once. Raises MungeError."""


class Munge:
    """MUNGE's daemon on this machine. socket_path: where it listens; empty: its usual place.

    Raises MungeError where there is no libmunge. Calls block for as long as the daemon takes.
    """

    def __init__(
        self, socket_path: str = "", *, load_library: Callable[[str], Any] | None = None
    ) -> None:
        import ctypes

        try:
            library = (load_library or ctypes.CDLL)(_LIBRARY)
        except OSError:
            raise MungeError(f"this machine has no {_LIBRARY}", absent=True) from None
        library.munge_ctx_create.restype = ctypes.c_void_p
        library.munge_strerror.restype = ctypes.c_char_p
        self._library = library
        self._libc = ctypes.CDLL(None)
        self._socket = os.fsencode(socket_path)

    def encode(self, payload: bytes) -> str:
        """Return a credential of this process's user for a payload. Raises MungeError."""
        import ctypes

        credential = ctypes.c_char_p()
        with _MungeContext(self._library, self._socket) as context:
            code = self._library.munge_encode(
                ctypes.byref(credential), context, payload, ctypes.c_int(len(payload))
            )
        try:
            self._check(code)
            return (credential.value or b"").decode("ascii")
        finally:
            self._libc.free(credential)

    def decode(self, credential: str) -> Vouched:
        """Return what a credential proves. It can be decoded only once. Raises MungeError."""
        import ctypes

        credential_bytes = credential.encode("ascii", "replace")
        if len(credential_bytes) > MAX_CREDENTIAL_BYTES or b"\0" in credential_bytes:
            raise MungeError("that is not a credential")
        payload_pointer, payload_length = ctypes.c_void_p(), ctypes.c_int()
        uid, gid = ctypes.c_uint32(), ctypes.c_uint32()
        with _MungeContext(self._library, self._socket) as munge_context:
            error_code = self._library.munge_decode(
                credential_bytes,
                munge_context,
                *map(ctypes.byref, (payload_pointer, payload_length, uid, gid)),
            )
        try:
            self._check(error_code)
            payload = (
                ctypes.string_at(payload_pointer, payload_length.value) if payload_pointer else b""
            )
            return Vouched(uid.value, gid.value, payload)
        finally:
            self._libc.free(payload_pointer)

    def _check(self, error_code: int) -> None:
        if error_code == 0:
            return
        if error_code in _SPENT_REASONS:
            raise MungeError(_SPENT_REASONS[error_code])
        reason = (self._library.munge_strerror(error_code) or b"").decode(errors="replace")
        # EMUNGE_SOCKET, EMUNGE_TIMEOUT: the daemon does not run, or hangs.
        raise MungeError(reason[:1].lower() + reason[1:], absent=error_code in (6, 7))


class _MungeContext:
    """libmunge's settings for one call. Threads must not share them."""

    def __init__(self, library: Any, socket_path: bytes) -> None:
        self._library, self._socket = library, socket_path

    def __enter__(self) -> Any:
        import ctypes

        self._context = ctypes.c_void_p(self._library.munge_ctx_create())
        path = self._socket
        if path and self._library.munge_ctx_set(self._context, _SOCKET_OPTION, path):
            self.__exit__()
            raise MungeError(f"{os.fsdecode(path)} is not MUNGE's socket", absent=True)
        return self._context

    def __exit__(self, *_: object) -> None:
        self._library.munge_ctx_destroy(self._context)


class FakeMunge:
    """A MUNGE for tests, with one realm. uid: the user who makes credentials."""

    def __init__(self, uid: int = 0) -> None:
        self.uid = uid
        self._made: dict[str, Vouched] = {}
        self._shown: set[str] = set()

    def encode(self, payload: bytes) -> str:
        """See `Munge.encode`."""
        credential = f"MUNGE:{len(self._made)}:"
        self._made[credential] = Vouched(self.uid, self.uid, payload)
        return credential

    def decode(self, credential: str) -> Vouched:
        """See `Munge.decode`."""
        if credential not in self._made:
            raise MungeError("invalid credential")
        if credential in self._shown:
            raise MungeError(_SPENT_REASONS[17])
        self._shown.add(credential)
        return self._made[credential]
