"""A timeline as sentences, as JSON and as a self-contained page."""

from __future__ import annotations

import json
import os
import re
import stat
from html.parser import HTMLParser
from pathlib import Path

import pytest

from podwright.cli.podwright import main
from podwright.timeline import TraceWriter, find_trace, note, open_file, read_timeline, trace_page
from podwright.timeline import _instance_records as said
from tests.timeline.test_writing import Clock, launch, record


class Elements(HTMLParser):
    """The elements of a page, and their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    launch(tmp_path / "run.trace", Clock())
    return tmp_path / "run.trace"


def test_a_trace_is_described_in_words(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", str(trace)]) == 0
    out = capsys.readouterr().out
    assert "Program:   train.py\n" in out
    assert "Ended:     with code 0\n" in out
    assert "It took 6.7 s: 15% waiting for devices, 52% starting" in out
    assert "Instance 1 was the slowest" in out
    assert re.search(r"^1 +\| 5\.0 s|^1 +\| 2\.0 s", out, re.MULTILINE)
    assert re.search(r"^Collective +\| Size +\| Times \| Waiting \| Transfer$", out, re.MULTILINE)
    assert "allReduceSum | 64 bytes | 200   | 1.0 ms  | 1.0 ms" in out
    assert "step | 400" in out
    assert "/profile/1 | profile.pop | 77 bytes" in out
    assert "1       | instance 0 ended with code 9" in out


def test_a_trace_without_collectives_says_that_waiting_is_not_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A program whose collectives are another library's, in which it may wait most of its time."""
    path, clock = tmp_path / "ddp.trace", Clock()
    trace = TraceWriter(open_file(str(path)), 2, clock)
    trace.begin("launch", program="train.py", instances=2)
    trace.attempt(1)
    for rank in (0, 1):
        trace.instance_began(rank, "a")
    trace.started()
    clock.forward(1000)
    for rank in (0, 1):
        trace.instance_ended(rank, 0)
    trace.end_to(1)
    trace.close(code=0)
    assert main(["trace", str(path)]) == 0
    out = capsys.readouterr().out
    assert "100% in the program, 0% ending." in out
    assert "waiting in" not in out
    assert "How long instances waited for each other is not known" in out
    assert re.search(r"^0 +\| .* 1\.0 s +\| not known \| not known$", out, re.MULTILINE)
    assert main(["trace", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["account"]
    assert (found["waiting_for_instances"], found["transfer"]) == (None, None)
    assert found["by_rank"]["1"]["waiting"] is None


def test_a_trace_is_described_as_json(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", str(trace), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["launch"]["code"] == 0
    assert found["account"]["slowest"]["rank"] == 1
    assert [phase["name"] for phase in found["phases"]][:3] == ["launch", "run", "partition"]
    assert [instance["code"] for instance in found["instances"]] == [9, 9, 0, 0]
    assert found["reports"] == [{"folder": "/profile/1", "files": {"profile.pop": 77}}]
    assert {"restart"} <= {event["what"] for event in found["happened"]}


def test_the_html_page_needs_no_other_file(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = trace.with_name("run.html")
    assert main(["trace", str(trace), "--html", str(page)]) == 0
    assert f"the page: {page}" in capsys.readouterr().out
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    text = page.read_text()
    found = Elements()
    found.feed(text)
    # Nothing is loaded and nothing runs, whatever a browser would allow.
    assert not {"script", "link", "img", "iframe", "object", "base", "form"} & set(found.tags)
    assert not [n for n, _ in found.attributes if n.startswith("on") or n in ("src", "href")]
    assert "default-src 'none'" in text
    assert "url(" not in text
    assert "@import" not in text
    assert "Instance 1 was the slowest" in text
    assert "<caption>Collectives</caption>" in text
    drawn = [value for name, value in found.attributes if name == "class"]
    kinds = {"launch", "instance", "join", "waiting", "collective", "slowest", "mark"}
    assert kinds <= set(drawn)


def test_the_legend_explains_every_colour_and_no_colour_means_two_things(trace: Path) -> None:
    text = trace_page(read_timeline(str(trace)))
    legend, drawing = re.findall(
        r'<ul class="legend">.*?</ul>|<svg viewBox="0 0 1200.*?</svg>', text
    )
    explained = re.findall(r'<li>.*?class="(\w+)".*?</svg>([^<]+)</li>', legend)
    kinds = [kind for kind, _ in explained]
    assert set(re.findall(r'<(?:rect|line) class="(\w+)"', drawing)) - {"grid"} <= set(kinds)
    assert len({meaning for _, meaning in explained}) == len(kinds) == len(set(kinds))
    colours = dict(re.findall(r"^\.(\w+) \{ fill: ([^;]+);", text, re.MULTILINE))
    colours |= dict(re.findall(r"\.(mark) \{ stroke: ([^;]+);", text))
    assert len({colours[kind] for kind in kinds}) == len(kinds)


def test_names_from_a_launch_are_escaped_in_the_page(tmp_path: Path) -> None:
    bad = '<script>alert("1")</script>'
    writer = TraceWriter(open_file(str(tmp_path / "t")), 1, Clock())
    writer.begin("launch", program=bad)
    writer.attempt(1)
    writer.instance_began(0, bad)
    writer.happened(bad, cause=bad)
    writer.report(0, bad, [(bad, 1)], 0)
    writer.close()
    text = trace_page(read_timeline(str(tmp_path / "t")))
    assert "<script" not in text
    assert "&lt;script&gt;" in text


def test_the_page_of_many_records_stays_small(tmp_path: Path) -> None:
    """Neighbours that no screen could show apart are merged."""
    clock = Clock()
    writer = TraceWriter(open_file(str(tmp_path / "t")), 400, clock)
    writer.begin("launch")
    writer.attempt(1)
    begin = clock()
    for rank in range(400):
        writer.instance_began(rank, f"n{rank // 8}")
    clock.forward(10_000)
    kind, name = said.COLLECTIVE, b"allReduceSum"
    for rank in (0, 1):
        at = [(i, begin + i * 1_000_000) for i in range(9000)]
        writer.records(rank, b"".join(record(kind, name, a, a + 500_000, 8, i) for i, a in at))
    writer.close()
    text = trace_page(read_timeline(str(tmp_path / "t")))
    assert len(text) < 2 << 20
    assert "more</text>" in text


def test_a_trace_is_found_by_the_names_of_its_launch(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    environ = dict(os.environ)
    note(environ, str(tmp_path / "older"), partition="p4", slurm="")
    note(environ, str(trace), partition="p4", slurm="4711")
    assert find_trace(environ, "4711") == str(trace)
    assert find_trace(environ, "") == ""
    assert main(["trace", "p4"]) == 0
    assert f"File:      {trace}" in capsys.readouterr().out
    assert main(["trace", "p5"]) != 0
    assert "no launch of that name was traced here" in capsys.readouterr().err
    notes = tmp_path / "state" / "podwright" / "traces.jsonl"
    assert stat.S_IMODE(notes.stat().st_mode) == 0o600
    notes.write_text("no JSON\n[1]\n" + notes.read_text())
    assert find_trace(environ, "4711") == str(trace)
    for i in range(3000):
        note(environ, f"/somewhere/rather/long/{'x' * 80}/{i}", partition=f"q{i}")
    assert notes.stat().st_size < 400 << 10
    assert find_trace(environ, "q2999").endswith("/2999")
    assert find_trace(environ, "4711") == ""
    note({}, str(trace), partition="nowhere to write")
