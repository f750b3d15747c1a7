"""Recall: every known kind of mistake is found in each of five wordings, on its line."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import pytest

from podwright.gpu.lint import lint, read_script, rules
from tests.gpu.requests.wordings import BETTER, MISTAKES, SITE, script

CASES = [
    pytest.param(rule, line, text, level, id=f"{kind}-{number}")
    for level, table in (("mistake", MISTAKES), ("better", BETTER))
    for kind, (rule, texts) in table.items()
    for number, (line, text) in enumerate(texts, 1)
]


@pytest.mark.parametrize(("rule", "line", "text", "level"), CASES)
def test_a_mistake_is_found_where_it_is(rule: str, line: int, text: str, level: str) -> None:
    site = SITE if rule == "over-the-limit" else None
    found = lint(read_script(script(text)), site, better=level == "better")
    told = [(one.rule, one.line, one.level) for one in found]
    expected = [
        row for row in told if row[1:] == (line, level) and (not rule or row[0] in rule.split("|"))
    ]
    assert expected, f"no {level} {rule} in line {line}, but {told}, of:\n{script(text)}"


def test_there_are_five_wordings_of_each() -> None:
    assert all(len(texts) == 5 for _, texts in (*MISTAKES.values(), *BETTER.values()))


def test_the_table_of_judged_findings_says_what_its_note_says() -> None:
    here = Path(__file__).parent
    with open(here / "judged.csv", newline="") as table:
        rows = list(csv.DictReader(table))
    assert {row["rule"] for row in rows} <= set(rules())
    verdicts = Counter(row["verdict"] for row in rows)
    note = (here / "judged.md").read_text()
    asked = verdicts["true"] + verdicts["false"]
    assert f"Together {verdicts['true']} of {asked} were true" in note
    told = Counter(row["verdict"] for row in rows if row["still_told"] == "yes")
    today = f"tell {told['true']} of the {verdicts['true']} true ones and {told['false']} of the"
    assert f"{today} {verdicts['false']} false ones" in note
