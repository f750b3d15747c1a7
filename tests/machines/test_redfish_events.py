"""Events end a pause early, and are never taken as facts."""

from __future__ import annotations

import json
import queue
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from podwright.agents.fabric import FabricTiming, HttpAnswer, Redfish
from podwright.agents.fabric._redfish_events import RedfishEvents
from podwright.errors import Unavailable

TASK = "/redfish/v1/TaskService/Tasks/1"


class Service:
    """One task that ends when its event was sent. stream: the lines; None ends it."""

    def __init__(self, uri: str = "https://elsewhere.example/redfish/v1/SSE?a=b") -> None:
        self.uri = uri
        self.stream: queue.Queue[bytes | None] = queue.Queue()
        self.streamed: list[str] = []
        self.looks = 0
        self.ends_after = 1

    def request(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> HttpAnswer:
        if method == "POST":
            return HttpAnswer(202, {"location": TASK, "retry-after": "9"}, b"{}")
        if path.endswith("/EventService"):
            return HttpAnswer(200, {}, json.dumps({"ServerSentEventUri": self.uri}).encode())
        self.looks += 1
        over = self.looks > self.ends_after
        if not over:
            self.stream.put(b"data: {}\n")
        state = "Completed" if over else "Running"
        return HttpAnswer(200, {"retry-after": "9"}, json.dumps({"TaskState": state}).encode())

    def lines(self, path: str, headers: dict[str, str]) -> Iterator[bytes]:
        self.streamed.append(path)
        while (line := self.stream.get()) is not None:
            yield line


@pytest.fixture
def service() -> Iterator[Service]:
    """Its stream ends with the test."""
    fake = Service()
    yield fake
    fake.stream.put(None)


def never(seconds: float) -> None:
    """A pause that no event ends."""
    raise AssertionError(f"it slept for {seconds} s")


def test_an_event_ends_the_pause_between_two_looks(service: Service) -> None:
    service.ends_after = 3
    Redfish(service, FabricTiming(3600.0, sleep=never)).change("POST", "/redfish/v1/Zones", {})
    assert service.looks == 4
    assert service.streamed == ["/redfish/v1/SSE?a=b"]


def test_without_a_stream_it_polls(service: Service) -> None:
    service.uri = ""
    slept: list[float] = []
    Redfish(service, FabricTiming(3600.0, sleep=slept.append)).change("POST", "/zones", {})
    assert slept[0] == 9.0
    assert service.streamed == []


def test_a_stream_that_breaks_leaves_polling() -> None:
    class Broken(Service):
        def lines(self, path: str, headers: dict[str, str]) -> Iterator[bytes]:
            raise Unavailable("the stream broke")
            yield b""

    events = RedfishEvents(Broken())
    events.listen("/sse", {})
    assert events._thread is not None
    events._thread.join()
    slept: list[float] = []
    events.pause(7.0, slept.append)
    assert slept == [7.0]
