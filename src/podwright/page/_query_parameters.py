"""The parameters of a query: its minutes, its name, the part of a table."""

from __future__ import annotations

import re
import urllib.parse
from typing import Final, NamedTuple

from podwright.errors import InvalidRequest

ROWS: Final = 200  #: rows of a part of a table, unless the query says otherwise
MAX_ROWS: Final = 1000


class TableQuery(NamedTuple):
    """A part of a table. after: what `next` of the part before said. find: text that each row has.
    name: this row alone.
    """

    topic: str
    after: str = ""
    find: str = ""
    name: str = ""
    limit: int = ROWS


def table_query_of(query: str) -> TableQuery:
    """Return the part of a table that a query names. Raises InvalidRequest."""
    fields = urllib.parse.parse_qs(query, keep_blank_values=True)
    wrong = [key for key, texts in fields.items() if len(texts) > 1 or key not in _TABLE_FIELDS]
    values = {key: texts[0][:1000] for key, texts in fields.items()}
    limit = values.pop("limit", str(ROWS))
    if wrong or "topic" not in values or not re.fullmatch(r"[1-9]\d{0,3}", limit, re.A):
        raise InvalidRequest(
            "this is no part of a table", would_work=f"?topic=partitions&limit={ROWS}&after=NAME"
        )
    return TableQuery(**values, limit=min(int(limit), MAX_ROWS))


_TABLE_FIELDS: Final = TableQuery._fields


def minutes_span_of(query: str, now_seconds: float) -> tuple[int, int, int]:
    """Return since, until and step of a query, in minutes.

    The default is the last hour, by the minute. Raises InvalidRequest.
    """
    parameters = _parse_query_numbers(query, "since", "until", "step")
    until_minute = parameters.get("until", int(now_seconds)) // 60 + 1
    since_minute = parameters.get("since", (until_minute - 60) * 60) // 60
    return since_minute, until_minute, max(1, parameters.get("step", 60) // 60)


def minute_of(query: str) -> tuple[int, str]:
    """Return `time` of a query, in minutes, and its `domain`, or "". Raises InvalidRequest."""
    fields = urllib.parse.parse_qs(query, keep_blank_values=True)
    domains = fields.pop("domain", [""])
    parameters = _parse_query_numbers(urllib.parse.urlencode(fields, doseq=True), "time")
    if len(domains) > 1:
        raise InvalidRequest("one link domain is shown at a time", would_work="?domain=CLUSTER/0")
    if "time" not in parameters:
        raise InvalidRequest("no time is named", would_work="?time=SECONDS, since 1970")
    return parameters["time"] // 60, domains[0][:200]


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
    return {name: int(parameter_values[0]) for name, parameter_values in query_values.items()}


def name_of(query: str) -> str:
    """Return `name` of a query. Raises InvalidRequest."""
    values = urllib.parse.parse_qs(query, keep_blank_values=True)
    if list(values) != ["name"] or len(values["name"]) > 1 or not values["name"][0]:
        raise InvalidRequest(
            "one thing is explained at a time",
            would_work="?name=ID of a request that waits, a lease or a partition",
        )
    return values["name"][0][:200]
