"""Random requests on random sites: what explain-request says against what Slurm was seen to do.

`seen/<release>/<seed>.txt` has a site (the first line, as scontrol and its files showed it) and
what real Slurm did with each request there: of sbatch, and the tasks of an srun on its own where
the line begins with that. tests/outer/gpu/test_any_site.py asks again.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from podwright.slurm.gpus.requests import SlurmCluster
from podwright.slurm.site.releases import Version
from tests.slurm.gpus.requests.any_outcome import UNKNOWN, lone_told, options_of, read_shown, told

SEEN = Path(__file__).parent / "seen"
RELEASES = ("22.05.8", "26.05.5")


class Record(NamedTuple):
    """A site and its release, with (options, outcome) of every request."""

    site: SlurmCluster
    version: Version
    rows: list[tuple[str, str]]


@cache
def records(release: str) -> list[Record]:
    """All of a release."""
    found = []
    for path in sorted((SEEN / release).glob("*.txt")):
        first, *rest = path.read_text().splitlines()
        site, version = read_shown(json.loads(first))
        rows = [(line.split(" | ", 1)[0], line.split(" | ", 1)[1]) for line in rest]
        found.append(Record(site, version, rows))
    return found


def _told(record: Record, options: str) -> str:
    if options.startswith("srun "):
        return lone_told(record.site, options.removeprefix("srun "), record.version)
    return told(record.site, options, record.version)


@cache
def answers(release: str) -> list[tuple[str, str, str]]:
    """(options, told, seen) of every request of a release."""
    return [
        (options, _told(record, options), outcome)
        for record in records(release)
        for options, outcome in record.rows
    ]


@pytest.mark.parametrize("release", RELEASES)
def test_no_request_ended_otherwise_than_told(release: str) -> None:
    wrong = {
        options: (ours, outcome)
        for options, ours, outcome in answers(release)
        if ours not in (outcome, UNKNOWN)
    }
    assert wrong == {}


@pytest.mark.parametrize("release", RELEASES)
def test_hardly_any_answer_is_not_known(release: str) -> None:
    asked: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    total = without = 0
    for options, ours, _ in answers(release):
        total += 1
        asked.update(options_of(options))
        if ours == UNKNOWN:
            without += 1
            unknown.update(options_of(options))
    assert total >= 900
    assert without <= 0.03 * total
    often = {name: (count, asked[name]) for name, count in unknown.items() if asked[name] >= 40}
    assert {name: of for name, of in often.items() if of[0] > 0.1 * of[1]} == {}


@pytest.mark.parametrize("release", RELEASES)
def test_the_record_has_every_outcome_and_mixed_nodes(release: str) -> None:
    outcomes = {outcome.split(" ")[0] for record in records(release) for _, outcome in record.rows}
    assert {"submit", "waits", "n1", "n2"} <= outcomes
    assert all(len(record.site.shapes) > 1 for record in records(release)[:1])
    threads = {shape.threads for record in records(release) for shape in record.site.shapes}
    assert threads == {1, 2}


def test_a_misspelt_closest_of_old_releases_gets_no_answer() -> None:
    """22.05.8 took `clossest` for a way to bind, 26.05.5 refused it; both refuse other words."""
    old, new = records("22.05.8")[0], records("26.05.5")[0]
    assert told(old.site, "--gpus=1 --gpu-bind=clossest", old.version) == UNKNOWN
    assert told(new.site, "--gpus=1 --gpu-bind=clossest", new.version) == "submit"
    assert told(old.site, "--gpus=1 --gpu-bind=singel:1", old.version) == "submit"
