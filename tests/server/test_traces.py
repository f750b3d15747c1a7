"""Traces: a span for each call, in its caller's trace; sent where the site says, or not at all."""

from __future__ import annotations

import asyncio
import http.server
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from podwright.server import ListenOptions, Server
from podwright.server._opentelemetry_spans import Traces, open_traces
from podwright.wire import messages
from tests.server.fakes import FakeController, Http, as_controller

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"


class Collector(http.server.ThreadingHTTPServer):
    """Takes OTLP over HTTP, as every collector does."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.got: list[ExportTraceServiceRequest] = []


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Collector)
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.got.append(ExportTraceServiceRequest.FromString(body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    thread = threading.Thread(target=made.serve_forever, args=(0.05,))
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def kept() -> tuple[Traces, InMemorySpanExporter]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Traces(provider), exporter


def told(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


async def test_each_call_is_a_span_of_its_callers_trace(folder: Path) -> None:
    traces, exporter = kept()
    server = Server(as_controller(FakeController()), ListenOptions(folder / "s"), traces=traces)
    await server.start()
    client = await Http.connect(folder / "s")
    head = f"POST /podwright.v1/ListLeases HTTP/1.1\r\nHost: x\r\ntraceparent: {PARENT}\r\n"
    assert (await client.raw(head.encode() + b"Content-Length: 2\r\n\r\n{}"))[0] == 200
    assert (await client.post("GetPartition", {"name": "none"}))[0] == 404
    client.close()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        ask = channel.unary_unary(messages.method_path("GetServerInfo"))
        await ask(b"", metadata=(("traceparent", PARENT),))
    spans = {span.name: span for span in exporter.get_finished_spans()}
    for name in ("ListLeases", "GetServerInfo"):
        span = spans[f"podwright.v1/{name}"]
        assert span.kind is SpanKind.SERVER
        assert span.parent is not None
        assert (f"{span.parent.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, SPAN)
        assert told(span)["rpc.method"] == name
        assert span.status.status_code is StatusCode.UNSET
    refused = spans["podwright.v1/GetPartition"]
    assert refused.parent is None
    assert told(refused)["error.type"] == "NOT_FOUND"
    assert refused.status.status_code is StatusCode.ERROR
    await server.stop(5)


async def test_they_are_sent_where_the_site_says(
    folder: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_port}"}
    for name, value in named.items():
        monkeypatch.setenv(name, value)
    traces = open_traces(named)
    assert traces is not None
    server = Server(as_controller(FakeController()), ListenOptions(folder / "s"), traces=traces)
    await server.start()
    client = await Http.connect(folder / "s")
    assert (await client.post("ListLeases"))[0] == 200
    client.close()
    await server.stop(5)  # what was not yet sent is sent now
    (sent,) = await asyncio.to_thread(lambda: collector.got)
    (resource,) = sent.resource_spans
    own = {pair.key: pair.value.string_value for pair in resource.resource.attributes}
    assert own["service.name"] == "vipu-server"
    names = [span.name for scope in resource.scope_spans for span in scope.spans]
    assert names == ["podwright.v1/ListLeases"]


async def test_a_collector_that_is_not_there_holds_up_nobody(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    traces = open_traces({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"})
    server = Server(as_controller(FakeController()), ListenOptions(folder / "s"), traces=traces)
    await server.start()
    client = await Http.connect(folder / "s")
    for _ in range(20):
        assert (await client.post("ListLeases"))[0] == 200
    client.close()
    async with asyncio.timeout(60):
        await server.stop(5)
    # What it still tries in the background draws from `random`, which Hypothesis would blame on
    # the test that runs by then.
    for thread in threading.enumerate():
        if "Otel" in thread.name or "shutdown" in thread.name:
            await asyncio.to_thread(thread.join, 60)
            assert not thread.is_alive()


def test_without_an_endpoint_or_the_packages_there_are_none(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:9"}
    assert open_traces({}) is None
    assert open_traces({**asked, "OTEL_SDK_DISABLED": "true"}) is None
    assert not caplog.records
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    assert open_traces(asked) is None
    assert "pip install 'podwright[traces]'" in caplog.text
