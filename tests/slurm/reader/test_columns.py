"""Columns of sacct and sinfo: a release that renames one is met in the reader alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import podwright
from podwright.errors import InvalidRequest
from podwright.gpu.efficiency import AccountedJob
from podwright.gpu.efficiency import read_jobs as read_accounted
from podwright.gpu.efficiency._sacct_jobs import _ACCOUNT_COLUMNS as EFFICIENCY
from podwright.gpu.health._drain_decisions import LIST_NODES_COMMAND, read_rows
from podwright.gpu.rehearse import LIST_JOBS, from_sacct
from podwright.replay import Skipped, TraceJob
from podwright.replay.traces._sacct import _REQUESTED_COLUMNS, read_sacct
from podwright.slurm.reader import (
    CUT,
    _sacct_sinfo_columns,
    accounting_columns,
    accounting_command,
    accounting_format,
    node_listing_command,
    read_accounting,
    read_node_listing,
)

#: A job, by the reader's own names.
JOB = {
    "job": "7",
    "raw_job": "7",
    "name": "train",
    "user": "alice",
    "partition": "gpu",
    "state": "COMPLETED",
    "submitted": "1700000000",
    "eligible": "1700000000",
    "start": "1700000060",
    "end": "1700000160",
    "seconds": "100",
    "limit_minutes": "60",
    "granted": "cpu=8,gres/gpu=2,mem=16G,node=1",
    "requested": "cpu=8,gres/gpu=2,mem=16G,node=1",
    "nodes": "1",
    "cpus": "8",
    "requested_memory": "16G",
}


def accounted() -> list[AccountedJob]:
    return read_accounted(CUT.join(JOB.get(name, "") for name in EFFICIENCY))


def traced(header: str) -> list[TraceJob]:
    row = "|".join(JOB.get(name, "") for name in _REQUESTED_COLUMNS)
    return list(read_sacct([header, row], Skipped()))


@pytest.mark.parametrize("name", sorted(_sacct_sinfo_columns._SACCT_COLUMNS))
def test_a_column_that_sacct_renames_is_renamed_in_one_place(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, trace = accounted(), traced(accounting_format(*_REQUESTED_COLUMNS).replace(",", "|"))
    monkeypatch.setitem(_sacct_sinfo_columns._SACCT_COLUMNS, name, "Renamed")
    columns = accounting_command(*EFFICIENCY)[-1].partition("=")[2].split(",")
    assert ("Renamed" in columns) is (name in EFFICIENCY)
    assert accounted() == before
    assert traced(accounting_format(*_REQUESTED_COLUMNS).replace(",", "|")) == trace


@pytest.mark.parametrize("name", ["state", "submitted"])
def test_a_column_that_a_file_lacks_is_named(name: str) -> None:
    column = accounting_format(name)
    words = accounting_format(*_REQUESTED_COLUMNS).split(",")
    header = "|".join("Renamed" if word == column else word for word in words)
    with pytest.raises(InvalidRequest, match=rf"has no field for .*: {column}\."):
        traced(header)


def test_columns_of_a_file_are_found_by_their_names() -> None:
    header = ["JobID", "Whatever", "JobName%30", "State"]
    assert accounting_columns(header) == {"job": 0, "name": 2, "state": 3}


def test_rows_with_too_few_columns_are_left_out() -> None:
    text = f"7{CUT}sbatch a\nb\n8{CUT}sbatch c\n"
    rows = read_accounting(text, "job", "submit_line")
    assert [row["job"] for row in rows] == ["7", "8"]
    assert from_sacct(f"7{CUT}/x{CUT}true\n").skipped == {"its submit line is not recorded": ["7"]}
    assert LIST_JOBS[0] == "sacct"


def test_the_last_column_of_sinfo_may_hold_anything() -> None:
    assert node_listing_command("node", "reason")[-1] == "%N|%E"
    rows = read_node_listing("n1|a | b\n\nn2\n", "node", "reason")
    assert rows == [{"node": "n1", "reason": "a | b"}]
    assert LIST_NODES_COMMAND[:4] == ("sinfo", "-h", "-N", "-o")
    (row,) = read_rows("n1|gpu|DRAINED|2026-11-21T18:00:00|why|so\n")
    assert (row.node, row.state, row.reason) == ("n1", "drained", "why|so")


def test_no_other_module_names_a_column() -> None:
    """Of names that are no common words."""
    names = {
        name
        for name in _sacct_sinfo_columns._SACCT_COLUMNS.values()
        if re.search("[A-Z].*[A-Z].*[A-Z]", name)
    }
    names -= {"ReqTRES", "AllocTRES"}  # fields of `scontrol show job`, too
    root = Path(podwright.__file__).parent
    for path in root.rglob("*.py"):
        if path.parent.name != "reader":
            used = {word for word in names if f'"{word}"' in path.read_text()}
            assert not used, path
