"""OpenTelemetry: a span for each call, where the site has said where traces go.

By the variables of its specification (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_SERVICE_NAME,
OTEL_TRACES_SAMPLER …) and by its own SDK, which is loaded only then. A caller that sends a
`traceparent` (W3C Trace Context) finds our span in its trace.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from podwright import __version__

if TYPE_CHECKING:
    from podwright.controller import Caller

_log = logging.getLogger("podwright.server")

#: What a caller sent of the trace that it is in; empty for none. Each call is a task of its own.
TRACE_PARENT: ContextVar[str] = ContextVar("traceparent", default="")
#: Where traces go. Either is enough.
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
#: Seconds for what was not yet sent when the server ends.
_LAST = 3.0


class Traces:
    """Makes spans. provider: an `opentelemetry.sdk.trace.TracerProvider`."""

    def __init__(self, provider: Any) -> None:
        from opentelemetry.trace import SpanKind, Status, StatusCode
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._tracer = provider.get_tracer("podwright", __version__)
        self._extract = TraceContextTextMapPropagator().extract
        self._kind = SpanKind.SERVER
        self._failed: Callable[[str], Any] = lambda words: Status(StatusCode.ERROR, words)

    @contextmanager
    def call(self, method: str, caller: Caller) -> Iterator[Callable[[str], None]]:
        """A call's span; what it gives is told the code of a refusal."""
        parent = TRACE_PARENT.get()
        attributes = {
            "rpc.system": "podwright",
            "rpc.service": "podwright.v1",
            "rpc.method": method,
            "enduser.id": caller.name,
            "podwright.origin": caller.origin,
        }
        with self._tracer.start_as_current_span(
            f"podwright.v1/{method}",
            context=self._extract({"traceparent": parent}) if parent else None,
            kind=self._kind,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:

            def refused(code: str) -> None:
                span.set_attribute("error.type", code)
                span.set_status(self._failed(code))

            yield refused

    async def close(self) -> None:
        """Send what was not yet sent, for at most three seconds."""
        # Not asyncio's threads, which the process would wait for.
        thread = threading.Thread(target=self._provider.shutdown, daemon=True)
        thread.start()
        await asyncio.to_thread(thread.join, _LAST)


def open_traces(environ: Mapping[str, str]) -> Traces | None:
    """What the site's variables ask for; None where they ask for nothing, or it is not there."""
    named = next((name for name in ENDPOINTS if environ.get(name)), None)
    if named is None or environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        _log.warning(
            "%s is set, and OpenTelemetry's packages are not there, so there are no traces: "
            "pip install 'podwright[traces]'",
            named,
        )
        return None
    ours = {} if environ.get("OTEL_SERVICE_NAME") else {"service.name": "vipu-server"}
    provider = TracerProvider(resource=Resource.create({**ours, "service.version": __version__}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Traces(provider)
