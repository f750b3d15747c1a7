"""The parameters of a query: its minutes and its name."""

from __future__ import annotations

import re
import urllib.parse

from podwright.errors import InvalidRequest


def minutes_span_of(query: str, now_seconds: float) -> tuple[int, int, int]:
    """Return since, until and step of a query, in minutes.

    The default is the last hour, by the minute. Raises InvalidRequest.
    """
    parameters = _parse_query_numbers(query, "since", "until", "step")
    until_minute = parameters.get("until", int(now_seconds)) // 60 + 1
    since_minute = parameters.get("since", (until_minute - 60) * 60) // 60
    return since_minute, until_minute, max(1, parameters.get("step", 60) // 60)


def minute_of(query: str) -> int:
    """Return `time` of a query, in minutes. Raises InvalidRequest."""
    parameters = _parse_query_numbers(query, "time")
    if "time" not in parameters:
        raise InvalidRequest("no time is named", would_work="?time=SECONDS, since 1970")
    return parameters["time"] // 60


def _parse_query_numbers(query: str, *known_names: str) -> dict[str, int]:
    query_values = urllib.parse.parse_qs(query, keep_blank_values=True)
    for parameter_name, parameter_values in query_values.items():
        if (
            parameter_name not in known_names
            or len(parameter_values) > 1
            or not re.fullmatch(r"\d{1,11}", parameter_values[0], re.A)
        ):
            raise InvalidRequest(
                f"{parameter_name[:40]!r} is not asked so",
                would_work=f"give {' and '.join(known_names)} once, in seconds",
            )
    return {
        parameter_name: int(parameter_values[0])
        for parameter_name, parameter_values in query_values.items()
    }


def name_of(query: str) -> str:
    """Return `parameter_name` of a query. Raises InvalidRequest."""
    query_values = urllib.parse.parse_qs(query, keep_blank_values=True)
    if (
        list(query_values) != ["name"]
        or len(query_values["name"]) > 1
        or not query_values["name"][0]
    ):
        raise InvalidRequest(
            "one thing is explained at a time",
            would_work="?name=ID of a request that waits, a lease or a partition",
        )
    return query_values["name"][0][:200]
