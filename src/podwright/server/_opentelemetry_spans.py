"""OpenTelemetry: a span for each call, where the site has set an address for traces.

The variables of its specification (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_SERVICE_NAME,
OTEL_TRACES_SAMPLER …) configure it. Its own SDK sends the spans and is loaded only then. A caller
that sends a `traceparent` (W3C Trace Context) finds the server's span in its trace.
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

#: The trace context that a caller sent; empty for none. Each call is a task with a value of its
#: own.
TRACE_PARENT: ContextVar[str] = ContextVar("traceparent", default="")
#: Variables with the address for traces. Either is enough.
ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
#: Seconds for sending the remaining spans when the server ends.
_SHUTDOWN_LIMIT_S = 3.0


class Traces:
    """Makes spans. provider: an `opentelemetry.sdk.trace.TracerProvider`."""

    def __init__(self, provider: Any) -> None:
        from opentelemetry.trace import SpanKind, Status, StatusCode
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._tracer = provider.get_tracer("podwright", __version__)
        self._extract_context = TraceContextTextMapPropagator().extract
        self._kind = SpanKind.SERVER
        self._failed: Callable[[str], Any] = lambda description: Status(
            StatusCode.ERROR, description
        )

    @contextmanager
    def call(self, method: str, caller: Caller) -> Iterator[Callable[[str], None]]:
        """Open a call's span. Yield a function that records the code of a refusal."""
        trace_parent = TRACE_PARENT.get()
        span_attributes = {
            "rpc.system": "podwright",
            "rpc.service": "podwright.v1",
            "rpc.method": method,
            "enduser.id": caller.name,
            "podwright.origin": caller.origin,
        }
        with self._tracer.start_as_current_span(
            f"podwright.v1/{method}",
            context=self._extract_context({"traceparent": trace_parent}) if trace_parent else None,
            kind=self._kind,
            attributes=span_attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:

            def refused(refusal_code: str) -> None:
                span.set_attribute("error.type", refusal_code)
                span.set_status(self._failed(refusal_code))

            yield refused

    async def close(self) -> None:
        """Send the remaining spans, for at most three seconds."""
        # It does not use asyncio's threads, for which the process would wait.
        shutdown_thread = threading.Thread(target=self._provider.shutdown, daemon=True)
        shutdown_thread.start()
        await asyncio.to_thread(shutdown_thread.join, _SHUTDOWN_LIMIT_S)


def open_traces(environ: Mapping[str, str]) -> Traces | None:
    """Return the traces that the site's variables ask for; None without them or the SDK."""
    endpoint_variable = next(
        (variable for variable in ENDPOINT_VARIABLES if environ.get(variable)), None
    )
    if endpoint_variable is None or environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
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
            endpoint_variable,
        )
        return None
    service_name = {} if environ.get("OTEL_SERVICE_NAME") else {"service.name": "vipu-server"}
    provider = TracerProvider(
        resource=Resource.create({**service_name, "service.version": __version__})
    )
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Traces(provider)
