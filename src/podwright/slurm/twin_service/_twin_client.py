"""Asks the service `podwright slurm twin serve`, by its Unix socket or over TCP with MUNGE."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from podwright.errors import (
    InvalidRequest,
    PodwrightError,
    TimedOut,
    Unavailable,
    error_from_json,
)
from podwright.ground.endpoints import system_path
from podwright.hosts import Vouches
from podwright.http import ask
from podwright.slurm.twin_service._twin_question import TwinAnswer, TwinQuestion

#: The variable that names a service: the path of its socket, or HOST:PORT.
TWIN_VARIABLE: Final = "PODWRIGHT_TWIN"
SOCKET: Final = system_path("/run/podwright-twin/twin.sock")
#: The file with a line `server = HOST:PORT` (or a path), for the login nodes of a site.
CONFIG: Final = system_path("/etc/podwright/twin.conf")
ANSWER_LIMIT_S: Final = 60.0  # seconds for an answer
_ASK_PATH: Final = "/slurm-twin.v1/Ask"  # the same as in _twin_http_server, which loads more
_STATUS_PATH: Final = "/slurm-twin.v1/Status"
_LARGEST_ANSWER_BYTES: Final = 64 << 20  # bytes of an answer


class TwinService:
    """One service.

    place: the path of its socket, or HOST:PORT. munge: returns what makes the credentials for TCP.
    It is called where a credential is needed, and may raise MungeError. limit: seconds for an
    answer.
    """

    def __init__(
        self,
        place: str,
        munge: Callable[[], Vouches] | None = None,
        *,
        limit: float = ANSWER_LIMIT_S,
    ) -> None:
        self.place = place
        self._munge = munge or _local_munge
        self._limit = limit

    def ask(self, question: TwinQuestion) -> TwinAnswer:
        """Return Slurm's answer.

        Raises Unavailable where the service does not answer, NoCapacity where it is too busy, and
        InvalidRequest for a question that it does not pass on to Slurm.
        """
        question_json = msgspec.json.encode(question)
        answer_json = self._send_http_request("POST", _ASK_PATH, question_json)
        try:
            return msgspec.json.decode(answer_json, type=TwinAnswer)
        except msgspec.MsgspecError as error:
            raise Unavailable(f"{self.place}: the answer cannot be read: {error}") from None

    def status(self) -> dict[str, Any]:
        """Return the service's figures. Raises Unavailable."""
        return dict(msgspec.json.decode(self._send_http_request("GET", _STATUS_PATH, b"")))

    def _send_http_request(self, method: str, call_path: str, request_body: bytes) -> bytes:
        headers = {"content-type": "application/json"}
        if request_body and not self.place.startswith("/"):
            headers["authorization"] = f"MUNGE {self._munge_credential(request_body)}"
        try:
            answer = ask(
                self._checked_place(),
                method,
                call_path,
                request_body,
                headers,
                timeout=self._limit,
                limit=_LARGEST_ANSWER_BYTES,
            )
        except TimeoutError:
            raise TimedOut(
                f"the twin service at {self.place} gave no answer within {self._limit:g} s"
            ) from None
        except OSError as error:
            problem = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise Unavailable(
                f"the twin service at {self.place} does not answer: {problem.lower()}",
                would_work="Start `podwright slurm twin serve` beside slurmctld",
            ) from None
        if answer.status != 200:
            raise _service_error(self.place, answer.status, answer.content)
        return answer.content

    def _checked_place(self) -> str:
        host, _, port = self.place.rpartition(":")
        if not self.place.startswith("/") and (not host or not port.isdecimal()):
            raise InvalidRequest(
                f"{self.place!r} is not the address of a twin service",
                would_work="The path of its socket, or HOST:PORT",
            )
        return self.place

    def _munge_credential(self, request_body: bytes) -> str:
        from podwright.hosts import MungeError

        try:
            return self._munge().encode(request_body)
        except MungeError as error:
            raise Unavailable(
                f"the twin service at {self.place} asks who you are, and MUNGE does not answer "
                f"here: {error}",
                would_work="Start munged here, or ask on the controller",
            ) from None


def find_twin_service(
    named_place: str = "", environ: Mapping[str, str] = os.environ
) -> TwinService | None:
    """Return the service that the argument, the environment or the site's file names.

    If none is named, it is the one at this machine's socket, or None if there is no such socket.
    Whether the service answers is not checked here.
    """
    service_place = named_place or environ.get(TWIN_VARIABLE, "") or _configured_place(Path(CONFIG))
    if service_place:
        return TwinService(service_place)
    return TwinService(SOCKET) if Path(SOCKET).is_socket() else None


def _configured_place(config_path: Path) -> str:
    """Return the place in a file of `server = PLACE`, or "". Raises InvalidRequest for another
    setting.
    """
    try:
        config_lines = config_path.read_text().splitlines()
    except OSError:
        return ""
    server = ""
    for line in config_lines:
        line = line.partition("#")[0].strip()
        if not line:
            continue
        setting_name, _, value = line.partition("=")
        if setting_name.strip() != "server" or not value.strip():
            raise InvalidRequest(
                f"{config_path}: {line[:60]!r} is not a setting", would_work="server = HOST:PORT"
            )
        server = value.strip().strip('"')
    return server


def _local_munge() -> Vouches:
    from podwright.hosts import Munge

    return Munge()


def _service_error(service_place: str, http_status: int, reply_body: bytes) -> PodwrightError:
    try:
        return error_from_json(msgspec.json.decode(reply_body, type=dict))
    except msgspec.MsgspecError:
        return Unavailable(f"the twin service at {service_place} answered {http_status}")
