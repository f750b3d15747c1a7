"""The one HTTP server of everything here that answers HTTP: uvicorn's, with the limits it lacks.

It serves the server's Unix socket and web port, and the hooks of Slurm's service. `Visitors` also
limits the connections of listeners of other kinds.
"""

from podwright.http._connection_limits import TooManyVisitors, Visitor, Visitors
from podwright.http._host_header import host_of, host_port, names_this_server
from podwright.http._http_server import HttpServer, listen, more_descriptors
from podwright.http._listener_state import Handler, HttpRequest, Limits, Listener, Reply
from podwright.http._metrics_front import Figure, MetricsFront, metrics_text

__all__ = [
    "Figure",
    "Handler",
    "HttpRequest",
    "HttpServer",
    "Limits",
    "Listener",
    "MetricsFront",
    "Reply",
    "TooManyVisitors",
    "Visitor",
    "Visitors",
    "host_of",
    "host_port",
    "listen",
    "metrics_text",
    "more_descriptors",
    "names_this_server",
]
