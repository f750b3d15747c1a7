"""Recall: every known kind of mistake is found in each of five wordings, on its line."""

from __future__ import annotations

import pytest

from podwright.slurm.lint import lint, read_script
from tests.slurm_requests.wordings import BETTER, MISTAKES, SITE, script

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
    if rule:
        assert [row for row in told if row[0] in rule.split("|") and row[1:] == (line, level)], told
    else:
        assert [row for row in told if row[1:] == (line, level)], told


def test_there_are_five_wordings_of_each() -> None:
    assert all(len(texts) == 5 for _, texts in (*MISTAKES.values(), *BETTER.values()))
