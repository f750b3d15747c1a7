"""Whose question it is, and what strangers are answered, without a Slurm."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from podwright.errors import Unavailable
from podwright.hosts import FakeMunge
from podwright.http import HttpRequest
from podwright.slurm.twin import Refused
from podwright.slurm.twin_service import TwinAnswer, TwinQuestion
from podwright.slurm.twin_service._serve_twins import _check_python
from podwright.slurm.twin_service._twin_http_server import ASK_PATH, STATUS_PATH, TwinFront
from podwright.slurm.twin_service._warm_twins import WarmTwins

BODY = msgspec.json.encode(TwinQuestion("sbatch", ("--gpus=1",)))


class AskedTwins:
    """Answers at once, and remembers who asked."""

    def __init__(self) -> None:
        self.uids: list[int] = []

    def ask(self, uid: int, question: TwinQuestion) -> Future[TwinAnswer]:
        self.uids.append(uid)
        future: Future[TwinAnswer] = Future()
        future.set_result(TwinAnswer("26.05.5", refused=Refused("no")))
        return future

    def status(self) -> dict[str, object]:
        return {"release": "26.05.5"}


def send(
    body: bytes = BODY,
    uid: int | None = None,
    authorization: str = "",
    *,
    munge: FakeMunge | None = None,
    call: tuple[str, str] = ("POST", ASK_PATH),
) -> tuple[int, dict[str, Any], list[int]]:
    twins = AskedTwins()
    front = TwinFront(cast("WarmTwins", twins), lambda asker: asker == 0, munge)
    headers = [(b"authorization", authorization.encode())] if authorization else []
    request = HttpRequest(*call, "", headers, body, uid, "" if uid is not None else "192.0.2.7")
    reply = asyncio.run(front.answer(request))
    assert isinstance(reply.body, bytes)
    return reply.status, msgspec.json.decode(reply.body), twins.uids


def test_on_the_socket_the_kernel_says_who_asks() -> None:
    status, body, uids = send(uid=1000)
    assert (status, body["refused"]["message"], uids) == (200, "no", [1000])


def test_over_tcp_a_credential_of_this_question_says_who_asks_once() -> None:
    munge = FakeMunge(1007)
    authorization = f"MUNGE {munge.encode(BODY)}"
    assert send(authorization=authorization, munge=munge)[0::2] == (200, [1007])
    assert send(authorization=authorization, munge=munge)[0::2] == (401, [])
    other = f"MUNGE {munge.encode(b'another question')}"
    assert send(authorization=other, munge=munge)[0::2] == (401, [])
    for nothing in ("", "Bearer x", "MUNGE nonsense"):
        assert send(authorization=nothing, munge=munge)[0::2] == (401, [])


@pytest.mark.parametrize(("asker", "status"), [(0, 200), (1000, 403)])
def test_only_who_has_the_right_asks_as_another_user(asker: int, status: int) -> None:
    body = msgspec.json.encode(TwinQuestion("sbatch", ("--gpus=1",), as_uid=1001))
    assert send(body, uid=asker)[0] == status


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"command": "sudo", "options": []}', BODY.replace(b"--gpus", b"--wrap")]
)
def test_what_is_no_question_is_refused_before_anything_is_asked(body: bytes) -> None:
    assert send(body, uid=1000)[0::2] == (400, [])


def test_the_status_is_for_everybody_and_there_is_no_other_call() -> None:
    assert send(call=("GET", STATUS_PATH))[1] == {"release": "26.05.5"}
    assert send(uid=0, call=("GET", ASK_PATH))[0] == 404
    assert send(uid=0, call=("POST", "/"))[0] == 404


def test_a_python_that_the_service_may_not_read_is_named_before_modules_are_missing(
    tmp_path: Path,
) -> None:
    """As below /root, once the service has given up its rights."""
    _check_python(__file__)
    with pytest.raises(Unavailable, match=r"may not read the Python that it runs on: .*private"):
        _check_python(str(tmp_path / "private"))
