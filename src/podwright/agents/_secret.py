"""How server and agent know each other: a shared key that never travels.

Each call carries a time, a nonce, the machine it is meant for, the server it comes from, which
start of that server it is, and an HMAC over all of them, the call's name and its bytes; each answer
an HMAC over the nonce and its own bytes. So neither side takes orders or facts from a stranger,
nothing can be changed on the way, and no call can be played again, to this agent or another, before
a restart or after it. What travels can still be read: it holds no secrets.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import stat
import time
from collections.abc import Callable
from pathlib import Path

from podwright.agents._idempotency import Call, Heard
from podwright.errors import InvalidRequest, Unauthenticated

AUTH_KEY = "podwright-agent-auth"
PROOF_KEY = "podwright-agent-proof"
#: Seconds that the clocks of server and agent may differ.
WINDOW = 120.0
_LEAST = 16


def read_key(path: Path) -> bytes:
    """The key in a file. Raises wire.InvalidRequest when others may read it, or it is short."""
    try:
        mode = path.stat().st_mode
        key = path.read_bytes().strip()
    except OSError as error:
        raise InvalidRequest(f"cannot read the key {path}: {error.strerror}") from None
    if stat.S_IMODE(mode) & 0o077:
        raise InvalidRequest(
            f"the key {path} can be read by others", would_work=f"chmod 600 {path}"
        )
    if len(key) < _LEAST:
        raise InvalidRequest(
            f"the key {path} has {len(key)} bytes, fewer than {_LEAST}",
            would_work="make one with: openssl rand -hex 32",
        )
    return key


def machine_key(path: Path) -> bytes:
    """The key that the server and the agents of one machine share where none is named: in a file
    of their account's, made by whoever comes first. Raises as `read_key` does."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        if not path.exists():
            with open(fresh, "x", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
                file.write(secrets.token_hex(32) + "\n")
                file.flush()
                os.fsync(file.fileno())
            with contextlib.suppress(FileExistsError):
                os.link(fresh, path)  # whole at once, and never in another's place
            fresh.unlink()
    except OSError as error:
        raise InvalidRequest(
            f"cannot make the key {path}: {(error.strerror or '').lower()}",
            would_work="--agent-key FILE, with a key that server and agents share",
        ) from None
    return read_key(path)


class Secret:
    """One side's use of the key. clock: seconds since 1970. heard: what an agent was told before.

    A server says who it is and which start of it this is by `introduce`.
    """

    def __init__(
        self, key: bytes, *, clock: Callable[[], float] = time.time, heard: Heard | None = None
    ) -> None:
        self._key = key
        self._clock = clock
        self._heard = heard or Heard(2 * WINDOW)
        self._server, self._epoch = "", 0

    def introduce(self, server: str, epoch: int) -> None:
        """From here on, calls are this server's. epoch: grows with each of its starts."""
        self._server, self._epoch = server, epoch

    def sign(self, call: str, body: bytes, machine: str) -> tuple[str, str]:
        """For a call to the agent of a machine: what goes into its metadata, and the nonce that
        its answer must prove."""
        nonce = secrets.token_hex(16)
        said = (f"{self._clock():.3f}", nonce, machine, self._server or "-", str(self._epoch))
        return " ".join((*said, self._mac("call", call, *said, body))), nonce

    def check(
        self, call: str, body: bytes, said: str, machine: str, *, lasting: bool = True
    ) -> str:
        """The nonce of a call to this machine that was signed with our key.

        lasting: it must not be done again after a restart either. Raises wire.Unauthenticated,
        and wire.Fenced for a server that was replaced.
        """
        parts = said.split(" ")
        if len(parts) != 6:
            raise _stranger("it is not signed", call)
        *words, mac = parts
        if not hmac.compare_digest(mac.encode(), self._mac("call", call, *words, body).encode()):
            raise _stranger("it is signed with another key", call)
        when, nonce, meant, server, epoch = words
        if meant != machine:
            raise Unauthenticated(
                f"this call is for machine {meant}, and this is {machine}",
                asked=call,
                would_work=f"create agent {machine}, or another address",
            )
        now = self._clock()
        if not abs(now - float(when)) <= WINDOW:
            raise _stranger(f"its clock is {now - float(when):.0f} s apart from ours", call)
        self._heard.hear(Call(nonce, float(when), server, int(epoch)), now, lasting=lasting)
        return nonce

    def sign_answer(self, nonce: str, body: bytes) -> str:
        """For an answer: what goes into its trailing metadata."""
        return self._mac("answer", nonce, "", "", body)

    def check_answer(self, nonce: str, body: bytes, proof: str) -> None:
        """Raises wire.Unauthenticated for an answer of somebody without our key."""
        if not hmac.compare_digest(proof, self.sign_answer(nonce, body)):
            raise Unauthenticated(
                "what answers there does not have the server's agent key",
                would_work="start server and agent with the same --agent-key file",
            )

    def _mac(self, kind: str, *parts: str | bytes) -> str:
        digest = hmac.new(self._key, f"podwright-agent {kind}".encode(), hashlib.sha256)
        for part in parts:
            raw = part.encode() if isinstance(part, str) else part
            digest.update(len(raw).to_bytes(8, "big") + raw)
        return digest.hexdigest()


def _stranger(problem: str, call: str) -> Unauthenticated:
    return Unauthenticated(
        f"the agent does not know this caller: {problem}",
        asked=call,
        would_work="start server and agent with the same --agent-key file, and set their clocks",
    )
