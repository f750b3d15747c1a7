"""Events as log lines, the moment they happen: for whoever reads the log, journald, or syslog.

What the server finds or does by itself goes to `podwright.events`, what callers did or were refused
to `podwright.audit`. A line carries the event's fields for a formatter that can show them.
"""

from __future__ import annotations

import logging
from typing import Final

from podwright.wire import EventInfo

_event_logger = logging.getLogger("podwright.events")
_audit_logger = logging.getLogger("podwright.audit")

#: What happened by itself, in words.
_EVENT_TEXTS: Final = {
    "MachineDown": "machine {about} is out of service: {detail}",
    "MachineUp": "machine {about} serves again: {detail}",
    "Error": "partition {about} of {owner} is in error: {detail}",
    "Mended": "{about}: {detail}; it is as it should be again",
    "Reset": "partition {about} of {owner} was reset ({detail})",
    "Relocate": "partition {about} of {owner} moved to other devices: {detail}",
    "LeaseEnd": "a launch on partition {about} of {owner} is fenced: lease {detail}",
    "Fencing": "partition {about} of {owner} is FENCING: {detail}",
    "Fenced": "a fence on partition {about} of {owner} is over: {detail}",
    "Start": "partition {about} of {owner} starts: {detail}",
}
_WARNING_EVENTS: Final = frozenset({"MachineDown", "Error", "Mended", "LeaseEnd", "Fencing"})


def log(event: EventInfo, *, own: bool) -> None:
    """Log an event. own: the server itself caused it, no caller."""
    logger, level = (_event_logger, logging.INFO) if own else (_audit_logger, logging.INFO)
    if event.outcome != "OK" or (own and event.what in _WARNING_EVENTS):
        level = logging.WARNING if own else logging.INFO
    if not logger.isEnabledFor(level):
        return
    event_fields = {name: getattr(event, name) for name in event.__struct_fields__}
    if own:
        message = _EVENT_TEXTS.get(event.what, "{what} {about}: {detail}").format(**event_fields)
    else:
        message = (
            f"{event.what} {event.about or '-'} by {event.who} ({event.origin}): {event.outcome}"
            + (f": {event.detail}" if event.detail else "")
        )
    logger.log(level, "%s", message, extra={"fields": event_fields})
