"""Copies of a site on their way from the keeper to the service."""

from __future__ import annotations

import io
from dataclasses import replace

from podwright.slurm.twin import Present, SiteFiles, SiteNames
from podwright.slurm.twin_service._site_copy import SiteCopy, receive, send

COPY = SiteCopy(
    SiteFiles(config="c", names=SiteNames({"alice": 7}, {"users": ("alice",)})),
    (26, 5),
    64030,
    frozenset({"jobs"}),
    Present({"job_state": b"\0jobs", "hash.1/job.1/script": b""}, accounts=True, source="/s"),
    read_at=5.0,
)


def test_a_copy_arrives_as_it_was_sent_and_an_unchanged_state_only_once() -> None:
    stream = io.BytesIO()
    later = replace(COPY, read_at=9.0)
    send(stream, COPY, None)
    first = stream.tell()
    send(stream, later, COPY)
    assert b"jobs" not in stream.getvalue()[first:].replace(b'"jobs"', b"")
    lost = replace(COPY, present=None, no_state="not readable")
    send(stream, lost, later)
    stream.seek(0)
    received = receive(stream, None)
    assert received == COPY
    assert receive(stream, received) == later
    assert receive(stream, later) == lost
    assert receive(stream, lost) is None


def test_a_copy_that_is_cut_off_is_none() -> None:
    stream = io.BytesIO()
    send(stream, COPY, None)
    text = stream.getvalue()
    for end in range(len(text)):
        assert receive(io.BytesIO(text[:end]), None) is None
