"""The destination of a server's log, and its form for programs: one JSON object on each line."""

from __future__ import annotations

import json
import logging
import logging.handlers
import socket
import sys

from podwright.errors import InvalidRequest

#: The log that is printed at every verbosity: what the server finds and does by itself.
EVENTS = "podwright.events"
_AUDIT = "podwright.audit"
_TEXT = "%(asctime)s %(levelname)s %(message)s"
_SYSLOG_SOCKET = "/dev/log"


class JsonLines(logging.Formatter):
    """Formats a record as JSON: time (seconds since 1970), level, logger and message.

    The fields of an event follow, with values of any kind, and the traceback if there is one.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        line: dict[str, object] = {
            "time": round(record.created, 3),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update(getattr(record, "fields", {}))
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def log_to(verbose: int, form: str, audit: str) -> None:
    """Log to standard error, and callers' actions also to `audit`.

    audit: `stderr`, `syslog`, `syslog:HOST:PORT`, or empty for the store alone.

    Raises wire.InvalidRequest for any other destination.
    """
    level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    shape = JsonLines() if form == "json" else logging.Formatter(_TEXT)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(shape)
    logging.basicConfig(level=level, handlers=[handler])
    logging.getLogger(EVENTS).setLevel(min(level, logging.INFO))
    if not audit:
        return
    logging.getLogger(_AUDIT).setLevel(logging.INFO)
    if audit == "stderr":
        return
    destination = _syslog(audit)
    destination.setFormatter(JsonLines() if form == "json" else logging.Formatter("%(message)s"))
    destination.ident = "vipu-server: "
    for name in (_AUDIT, EVENTS):
        logging.getLogger(name).addHandler(destination)
    logging.getLogger(_AUDIT).propagate = False


def _reach(path: str) -> None:
    """Raise OSError unless something reads the system's log, because SysLogHandler would stay
    silent.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
        connection.connect(path)


def _syslog(place: str) -> logging.handlers.SysLogHandler:
    kind, _, address = place.partition(":")
    host, _, port = address.rpartition(":")
    if kind != "syslog" or (address and not (host and port.isdecimal() and 0 < int(port) < 65536)):
        raise InvalidRequest(
            f"{place[:80]!r} is no place for the audit",
            operation="--audit-log",
            would_work="stderr, syslog, or syslog:HOST:PORT",
        )
    try:
        if not address:
            _reach(_SYSLOG_SOCKET)
        return logging.handlers.SysLogHandler(
            (host.strip("[]"), int(port)) if address else _SYSLOG_SOCKET,
            facility=logging.handlers.SysLogHandler.LOG_AUTHPRIV,
        )
    except OSError as error:
        raise InvalidRequest(
            f"syslog cannot be reached: {error.strerror or error}",
            operation="--audit-log",
            would_work="start it, or: --audit-log stderr, which journald keeps under systemd",
        ) from None
