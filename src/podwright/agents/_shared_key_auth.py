"""Authentication between server and agent: a shared key that is never transmitted.

Each call carries a time, a nonce, the machine that it is for, the server that it comes from, the
start of that server, and an HMAC over all of these, the call's name and its bytes. Each reply
carries an HMAC over the nonce and its own bytes. So neither side accepts orders or facts from a
stranger, and nothing can be changed in transit. No call can be replayed, to this agent or another,
before a restart or after it. The messages are readable in transit, and contain no secrets.
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

from podwright.agents._replay_protection import Call, Heard
from podwright.errors import InvalidRequest, Unauthenticated

AUTH_METADATA_KEY = "podwright-agent-auth"
PROOF_METADATA_KEY = "podwright-agent-proof"
#: Seconds by which the clocks of server and agent may differ.
WINDOW = 120.0
_LEAST_KEY_BYTES = 16


def read_key(path: Path) -> bytes:
    """Return the key in a file.

    Raises wire.InvalidRequest when other users may read the file, or when the key is too short.
    """
    try:
        file_mode = path.stat().st_mode
        key = path.read_bytes().strip()
    except OSError as error:
        raise InvalidRequest(f"cannot read the key {path}: {error.strerror}") from None
    if stat.S_IMODE(file_mode) & 0o077:
        raise InvalidRequest(
            f"the key {path} can be read by others", would_work=f"chmod 600 {path}"
        )
    if len(key) < _LEAST_KEY_BYTES:
        raise InvalidRequest(
            f"the key {path} has {len(key)} bytes, fewer than {_LEAST_KEY_BYTES}",
            would_work="make one with: openssl rand -hex 32",
        )
    return key


def machine_key(path: Path) -> bytes:
    """Return the key that the server and the agents of one machine share when none is named.

    The key is in a file of their account, and the first process that needs it creates it. Raises as
    `read_key` does.

    Several processes may start at once. Each writes a key to a file of its own and links that file
    to the common path. A link cannot replace an existing file, so only the first one succeeds, and
    the file is complete as soon as it has its name. All processes then read the same key.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary_path = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        if not path.exists():
            with open(
                temporary_path,
                "x",
                opener=lambda opened_path, flags: os.open(opened_path, flags, 0o600),
            ) as file:
                file.write(secrets.token_hex(32) + "\n")
                file.flush()
                os.fsync(file.fileno())
            with contextlib.suppress(FileExistsError):
                os.link(temporary_path, path)  # complete when it appears; never replaces another's
            temporary_path.unlink()
    except OSError as error:
        raise InvalidRequest(
            f"cannot make the key {path}: {(error.strerror or '').lower()}",
            would_work="--agent-key FILE, with a key that server and agents share",
        ) from None
    return read_key(path)


class Secret:
    """One side's use of the key.

    clock: returns seconds since 1970. received_calls: the calls that an agent has received.

    A server declares who it is, and which of its starts this is, by `introduce`.
    """

    def __init__(
        self,
        key: bytes,
        *,
        clock: Callable[[], float] = time.time,
        received_calls: Heard | None = None,
    ) -> None:
        self._key = key
        self._clock = clock
        self._heard = received_calls or Heard(2 * WINDOW)
        self._server, self._epoch = "", 0

    def introduce(self, server: str, epoch: int) -> None:
        """Sign the calls that follow as this server. epoch: a number that grows with each of its
        starts.
        """
        self._server, self._epoch = server, epoch

    def sign(self, call_name: str, body: bytes, machine: str) -> tuple[str, str]:
        """Sign a call to the agent of a machine.

        Returns the credential for the metadata, and the nonce that the reply must prove.
        """
        nonce = secrets.token_hex(16)
        fields = (
            f"{self._clock():.3f}",
            nonce,
            machine,
            self._server or "-",
            str(self._epoch),
        )
        return " ".join((*fields, self._message_mac("call", call_name, *fields, body))), nonce

    def check(
        self, call: str, body: bytes, credential: str, machine: str, *, lasting: bool = True
    ) -> str:
        """Check the credential of a call to this machine, and return the nonce of the call.

        lasting: the agent must not obey the call twice, even after a restart. Raises
        wire.Unauthenticated, and wire.Fenced for a server that was replaced.
        """
        credential_parts = credential.split(" ")
        if len(credential_parts) != 6:
            raise _unknown_caller("it is not signed", call)
        *signed_fields, mac = credential_parts
        if not hmac.compare_digest(
            mac.encode(), self._message_mac("call", call, *signed_fields, body).encode()
        ):
            raise _unknown_caller("it is signed with another key", call)
        signed_at, nonce, addressee, server, epoch = signed_fields
        if addressee != machine:
            raise Unauthenticated(
                f"this call is for machine {addressee}, and this is {machine}",
                operation=call,
                would_work=f"create agent {machine}, or another address",
            )
        now = self._clock()
        if not abs(now - float(signed_at)) <= WINDOW:
            raise _unknown_caller(
                f"its clock is {now - float(signed_at):.0f} s apart from ours", call
            )
        self._heard.hear(Call(nonce, float(signed_at), server, int(epoch)), now, lasting=lasting)
        return nonce

    def sign_answer(self, nonce: str, reply_bytes: bytes) -> str:
        """Return the proof for a reply, which goes into its trailing metadata."""
        return self._message_mac("answer", nonce, "", "", reply_bytes)

    def check_answer(self, nonce: str, reply_bytes: bytes, proof: str) -> None:
        """Raise wire.Unauthenticated for a reply of somebody who does not have the key."""
        if not hmac.compare_digest(proof, self.sign_answer(nonce, reply_bytes)):
            raise Unauthenticated(
                "what answers there does not have the server's agent key",
                would_work="start server and agent with the same --agent-key file",
            )

    def _message_mac(self, message_kind: str, *parts: str | bytes) -> str:
        digest = hmac.new(self._key, f"podwright-agent {message_kind}".encode(), hashlib.sha256)
        for part in parts:
            part_bytes = part.encode() if isinstance(part, str) else part
            digest.update(len(part_bytes).to_bytes(8, "big") + part_bytes)
        return digest.hexdigest()


def _unknown_caller(problem: str, call_name: str) -> Unauthenticated:
    return Unauthenticated(
        f"the agent does not know this caller: {problem}",
        operation=call_name,
        would_work="start server and agent with the same --agent-key file, and set their clocks",
    )
