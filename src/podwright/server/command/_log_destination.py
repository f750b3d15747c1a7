"""The destination of a server's log, and its form for programs: one JSON object on each line."""

from __future__ import annotations

import json
import logging
import logging.handlers
import socket
import sys

from podwright.errors import InvalidRequest

#: The log that is printed at every verbosity: what the server finds and does by itself.
EVENT_LOGGER = "podwright.events"
_AUDIT_LOGGER = "podwright.audit"
_TEXT = "%(asctime)s %(levelname)s %(message)s"
_SYSLOG_SOCKET = "/dev/log"


class JsonLineFormatter(logging.Formatter):
    """Formats a record as JSON: time (seconds since 1970), level, logger and message.

    The fields of an event follow, with values of any kind, and the traceback if there is one.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        fields: dict[str, object] = {
            "time": round(record.created, 3),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields.update(getattr(record, "fields", {}))
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)


def set_up_logging(verbose: int, log_format: str, audit_destination: str) -> None:
    """Log to standard error, and callers' actions also to `audit_destination`.

    audit_destination: `stderr`, `syslog`, `syslog:HOST:PORT`, or empty for the store alone.

    Raises wire.InvalidRequest for any other destination.
    """
    level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    log_formatter = JsonLineFormatter() if log_format == "json" else logging.Formatter(_TEXT)
    stderr_handler = logging.StreamHandler(sys.stderr)
    stderr_handler.setFormatter(log_formatter)
    logging.basicConfig(level=level, handlers=[stderr_handler])
    logging.getLogger(EVENT_LOGGER).setLevel(min(level, logging.INFO))
    if not audit_destination:
        return
    logging.getLogger(_AUDIT_LOGGER).setLevel(logging.INFO)
    if audit_destination == "stderr":
        return
    syslog_destination = _syslog_handler(audit_destination)
    syslog_destination.setFormatter(
        JsonLineFormatter() if log_format == "json" else logging.Formatter("%(message)s")
    )
    syslog_destination.ident = "vipu-server: "
    for name in (_AUDIT_LOGGER, EVENT_LOGGER):
        logging.getLogger(name).addHandler(syslog_destination)
    logging.getLogger(_AUDIT_LOGGER).propagate = False


def _check_syslog_listens(socket_path: str) -> None:
    """Raise OSError unless something reads the system's log, because SysLogHandler would stay
    silent.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
        connection.connect(socket_path)


def _syslog_handler(audit_destination: str) -> logging.handlers.SysLogHandler:
    destination_kind, _, host_and_port = audit_destination.partition(":")
    host, _, port = host_and_port.rpartition(":")
    if destination_kind != "syslog" or (
        host_and_port and not (host and port.isdecimal() and 0 < int(port) < 65536)
    ):
        raise InvalidRequest(
            f"{audit_destination[:80]!r} is no place for the audit",
            operation="--audit-log",
            would_work="stderr, syslog, or syslog:HOST:PORT",
        )
    try:
        if not host_and_port:
            _check_syslog_listens(_SYSLOG_SOCKET)
        return logging.handlers.SysLogHandler(
            (host.strip("[]"), int(port)) if host_and_port else _SYSLOG_SOCKET,
            facility=logging.handlers.SysLogHandler.LOG_AUTHPRIV,
        )
    except OSError as error:
        raise InvalidRequest(
            f"syslog cannot be reached: {error.strerror or error}",
            operation="--audit-log",
            would_work="start it, or: --audit-log stderr, which journald keeps under systemd",
        ) from None
