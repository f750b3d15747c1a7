"""Lists with kubectl's habits: formats, order, a table that fits, and watching."""

from __future__ import annotations

import argparse
import json
import sys

import pytest

from podwright.cli.shared import _listing
from podwright.cli.shared._listing import ListView, rendered, show_list
from podwright.cli.shared._noun_grammar import ListOptions
from podwright.errors import InvalidRequest
from podwright.ground.tables import Table, natural

VALUES = [{"name": f"p{n}", "size": size} for n, size in ((10, 4), (2, 64), (1, 8))]
HEADER = ("Cluster", "Partition", "Routing", "Size", "State")


def listing(cluster: str = "pod64") -> ListView:
    rows: list[tuple[object, ...]] = [
        (cluster, value["name"], "DNC", value["size"], "ACTIVE") for value in VALUES
    ]
    return ListView(VALUES, Table(HEADER, rows, "Partition", ("Routing", "Cluster")))


def options(**given: object) -> ListOptions:
    return ListOptions(argparse.Namespace(**given))


def test_a_list_is_printed_in_each_format() -> None:
    assert rendered(options(output="name"), listing()) == "p10\np2\np1"
    assert json.loads(rendered(options(output="json"), listing())) == VALUES
    assert rendered(options(json=True), listing()) == rendered(options(output="json"), listing())
    assert rendered(options(output="yaml"), listing()).startswith("- name: p10\n  size: 4\n- name")
    whole = rendered(options(), listing())
    assert whole == rendered(options(output="wide"), listing()), "off a terminal all of it"
    assert whole.splitlines()[0] == "Cluster | Partition | Routing | Size | State"


def test_sorting_orders_rows_and_values_alike() -> None:
    assert rendered(options(output="name", sort_by="partition"), listing()) == "p1\np2\np10"
    found = json.loads(rendered(options(output="json", sort_by="Size"), listing()))
    assert [value["size"] for value in found] == [4, 8, 64]
    with pytest.raises(InvalidRequest) as refused:
        rendered(options(sort_by="Colour"), listing())
    assert "Cluster, Partition, Routing, Size, State" in refused.value.would_work
    assert sorted(["ag10", "ag2", "AG1", "b"], key=natural) == ["AG1", "ag2", "ag10", "b"]


@pytest.mark.parametrize("width", [120, 44, 36, 28, 20])
def test_a_table_fits_its_terminal(width: int) -> None:
    text = str(listing().table.fitted(width))
    lines = text.splitlines()
    assert max(map(len, lines)) <= max(width, 28), "name, size and state always stay"
    assert "p10" in text
    assert ("Routing" in text) == (width >= 45)


def test_a_long_cell_is_cut_short() -> None:
    text = str(listing("a-cluster-" * 20).table.fitted(60))
    assert max(map(len, text.splitlines())) <= 60
    assert "a-cluster" not in text, "the column is optional"
    kept = Table(("Name", "Needs"), [("w1", "devices of " * 20)], "Name")
    lines = str(kept.fitted(40)).splitlines()
    assert max(map(len, lines)) == 40
    assert lines[2].endswith("\N{HORIZONTAL ELLIPSIS}")


def test_on_a_terminal_the_table_fits_and_wide_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "36")
    monkeypatch.setenv("TERM", "dumb")
    assert "Routing" not in rendered(options(), listing())
    assert "Routing" in rendered(options(output="wide"), listing())


def test_watching_prints_what_changes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three looks, of which the second shows nothing new; Ctrl-C comes after the third."""
    looks = iter([listing(), listing(), listing("pod16")])

    def read() -> ListView:
        try:
            return next(looks)
        except StopIteration:
            raise KeyboardInterrupt from None

    monkeypatch.setattr(_listing, "INTERVAL", 0.0)
    with pytest.raises(KeyboardInterrupt):
        show_list(options(watch=True, output="name"), read)
    assert capsys.readouterr().out == "p10\np2\np1\n"
    looks = iter([listing(), listing(), listing("pod16")])
    with pytest.raises(KeyboardInterrupt):
        show_list(options(watch=True), read)
    out = capsys.readouterr().out
    assert out.count("Cluster |") == 2
    assert out.index("pod64") < out.index("pod16")
