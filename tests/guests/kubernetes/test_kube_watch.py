"""A watch of the API server misses nothing, however it ends, and says while it is deaf."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from podwright.errors import NotFound, PodwrightError, Unavailable
from podwright.guests.kubernetes.cluster import _kube_watch
from podwright.guests.kubernetes.cluster._kube_interface import Object
from podwright.guests.kubernetes.cluster._kube_watch import KindWatch

Body = list[bytes] | PodwrightError


def item(name: str, version: int = 1) -> Object:
    return {"metadata": {"name": name, "uid": f"u-{name}", "resourceVersion": str(version)}}


def line(kind: str, changed: Object) -> bytes:
    return json.dumps({"type": kind, "object": changed}).encode() + b"\n"


class PlayedApi:
    """Gives the lists and the streams that it was made with, in turn, then streams for ever."""

    def __init__(self, lists: list[list[Object] | PodwrightError], streams: list[Body]) -> None:
        self.lists, self.streams = lists, streams
        self.asked_from: list[str] = []
        self.over = asyncio.Event()

    async def listed(self, path: str, query: Mapping[str, Any]) -> tuple[list[Object], str]:
        answer = self.lists.pop(0)
        if isinstance(answer, PodwrightError):
            raise answer
        return answer, f"list{len(self.lists)}"

    async def stream(self, path: str, query: Mapping[str, Any]) -> AsyncIterator[bytes]:
        self.asked_from.append(query["resourceVersion"])
        if not self.streams:
            self.over.set()
            yield b""
            await asyncio.Event().wait()
        body = self.streams.pop(0)
        if isinstance(body, PodwrightError):
            raise body
        yield b""
        for piece in body:
            yield piece


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_kube_watch, "_FIRST_PAUSE_S", 0.0)


async def seen(api: PlayedApi) -> tuple[list[tuple[str, str]], KindWatch]:
    """The events that a watch reports until it follows for ever, each with the object's name."""
    events: list[tuple[str, str]] = []

    def on_event(kind: str, event: str, changed: Object) -> None:
        assert kind == "Pod"
        events.append((event, changed["metadata"]["name"]))

    watch = KindWatch(api, "Pod", "/pods", {}, on_event, lambda: 7.0)
    assert watch.deaf_since == 7.0
    task = asyncio.create_task(watch.run())
    async with asyncio.timeout(300):
        await api.over.wait()
        await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return events, watch


async def test_a_watch_reports_what_exists_and_then_every_change() -> None:
    whole = line("ADDED", item("b", 5)) + line("DELETED", item("a", 6))
    api = PlayedApi([[item("a")]], [[whole[:30], whole[30:70], whole[70:]]])
    events, watch = await seen(api)
    assert events == [("", "a"), ("ADDED", "b"), ("DELETED", "a")]
    assert api.asked_from == ["list0", "6"]
    assert watch.deaf_since is None


async def test_a_bookmark_moves_the_version_and_is_no_event() -> None:
    api = PlayedApi([[]], [[line("BOOKMARK", {"metadata": {"resourceVersion": "40"}})]])
    events, _ = await seen(api)
    assert events == []
    assert api.asked_from == ["list0", "40"]


@pytest.mark.parametrize(
    "end",
    [
        [line("ERROR", {"code": 410, "message": "too old resource version"})],
        [b"no JSON\n"],
        [b'{"type": "ADDED"}\n'],
        Unavailable("the API server does not answer"),
        NotFound("the API server says 404"),
    ],
)
async def test_a_watch_lists_again_after_any_end_and_reports_what_was_deleted(end: Body) -> None:
    api = PlayedApi([[item("a"), item("b")], [item("b"), item("c")]], [end])
    events, watch = await seen(api)
    assert events[:2] == [("", "a"), ("", "b")]
    assert events[2:] == [("", "b"), ("", "c"), ("DELETED", "a")]
    assert watch.deaf_since is None


async def test_a_definition_that_is_away_is_waited_for() -> None:
    away = NotFound("the API server says 404: the server could not find the requested resource")
    api = PlayedApi([[item("a")], away, away, [item("b")]], [away])
    events, watch = await seen(api)
    assert events == [("", "a"), ("", "b"), ("DELETED", "a")]
    assert watch.deaf_since is None
    assert "404" in watch.problem


async def test_a_watch_is_deaf_while_nothing_is_heard() -> None:
    problem = Unavailable("the API server does not answer")
    api = PlayedApi([], [])
    watch = KindWatch(api, "Pod", "/pods", {}, lambda *_: None, lambda: 9.0)
    api.lists = [problem] * 3
    with pytest.raises(IndexError):  # the fourth list
        await watch.run()
    assert watch.deaf_since == 9.0
    assert watch.problem == str(problem)


async def test_a_stream_that_neither_ends_nor_speaks_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The API server is frozen, or something on the way drops packets."""
    monkeypatch.setattr(_kube_watch, "_SILENT_S", 0.05)

    frozen = asyncio.Event()

    class Frozen(PlayedApi):
        async def listed(self, path: str, query: Mapping[str, Any]) -> tuple[list[Object], str]:
            if not self.lists:
                frozen.set()
                await asyncio.Event().wait()
            return await super().listed(path, query)

    api = Frozen([[item("a")]], [])
    watch = KindWatch(api, "Pod", "/pods", {}, lambda *_: None, lambda: 9.0)
    task = asyncio.create_task(watch.run())
    async with asyncio.timeout(300):
        await frozen.wait()
    assert watch.deaf_since == 9.0
    assert "did not end" in watch.problem
    task.cancel()


async def test_a_stream_ends_before_it_counts_as_silent() -> None:
    assert _kube_watch._STREAM_LIFETIME_S < _kube_watch._SILENT_S <= 12.0
