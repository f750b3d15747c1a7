"""What scontrol of three releases prints, recorded on the lab's clusters, and changes of it."""

from __future__ import annotations

import re
from pathlib import Path

RELEASES = ("22.05.8", "24.11.5", "26.05.5")
_RECORDED = Path(__file__).parent / "recorded"


def recorded(release: str, kind: str) -> str:
    """The output of `scontrol show`. kind: config, nodes, partitions, jobs or reservations."""
    return (_RECORDED / release / f"{kind}.txt").read_text()


def config(release: str = "26.05.5", **settings: str) -> str:
    """The configuration with other settings; one that the release does not print is added."""
    text = recorded(release, "config")
    for name, value in settings.items():
        text, found = re.subn(rf"^{name} *= .*$", f"{name} = {value}", text, flags=re.M)
        text += "" if found else f"{name} = {value}\n"
    return text


def _changed(line: str, fields: dict[str, str]) -> str:
    for name, value in fields.items():
        field = name.replace("_per_", "/")
        line, found = re.subn(rf"(^| ){field}=\S*", rf"\1{field}={value}", line, count=1)
        line += "" if found else f" {field}={value}"
    return line + "\n"


def node(release: str = "26.05.5", **fields: str) -> str:
    """The line of a node, with other values of fields."""
    return _changed(recorded(release, "nodes").splitlines()[0], fields)


def partition(release: str = "26.05.5", **fields: str) -> str:
    """The line of a partition, with other values of fields."""
    return _changed(recorded(release, "partitions").splitlines()[0], fields)


def job(state: str, release: str = "26.05.5", **fields: str) -> str:
    """The line of a job that runs (RUNNING) or waits (PENDING), with other values of fields."""
    lines = recorded(release, "jobs").splitlines()
    return _changed(next(one for one in lines if f"JobState={state}" in one), fields)
