"""What a query asks: of which minutes, and of what."""

from __future__ import annotations

import re
import urllib.parse

from podwright.errors import InvalidRequest


def span_of(query: str, now: float) -> tuple[int, int, int]:
    """since, until and step of a query, in minutes: by default the last hour by the minute.

    Raises InvalidRequest."""
    said = _said(query, "since", "until", "step")
    until = said.get("until", int(now)) // 60 + 1
    since = said.get("since", (until - 60) * 60) // 60
    return since, until, max(1, said.get("step", 60) // 60)


def minute_of(query: str) -> int:
    """`time` of a query, in minutes. Raises InvalidRequest."""
    said = _said(query, "time")
    if "time" not in said:
        raise InvalidRequest("no time is named", would_work="?time=SECONDS, since 1970")
    return said["time"] // 60


def _said(query: str, *known: str) -> dict[str, int]:
    said = urllib.parse.parse_qs(query, keep_blank_values=True)
    for name, values in said.items():
        if name not in known or len(values) > 1 or not re.fullmatch(r"\d{1,11}", values[0], re.A):
            raise InvalidRequest(
                f"{name[:40]!r} is not asked so", would_work=f"{', '.join(known)}: seconds, once"
            )
    return {name: int(values[0]) for name, values in said.items()}


def name_of(query: str) -> str:
    """`name` of a query. Raises InvalidRequest."""
    said = urllib.parse.parse_qs(query, keep_blank_values=True)
    if list(said) != ["name"] or len(said["name"]) > 1 or not said["name"][0]:
        raise InvalidRequest(
            "one thing is explained at a time",
            would_work="?name=ID of a request that waits, a lease or a partition",
        )
    return said["name"][0][:200]
