"""Every known mistake is found on its line, in each wording, and right scripts are left alone.

The mistakes stand in `wordings.py`, the right scripts there, in `scripts/good` and in
`tests/gpu/lint/right_scripts.py`.
"""

from __future__ import annotations

import csv
import json
import os
from collections import Counter
from pathlib import Path

import pytest

from podwright.cli.podwright import main
from podwright.gpu.lint import CachedSite, fix, lint, read_script, rules
from podwright.slurm.site.releases import parse_version
from tests.gpu.lint.right_scripts import RIGHT_LAUNCHES
from tests.gpu.requests.wordings import BASH, BETTER, MISTAKES, REFUSED, RIGHT, SILENT, SITE, script

CASES = [
    pytest.param(rule, line, text, level, id=f"{kind}-{number}")
    for level, table in (("mistake", MISTAKES), ("better", BETTER))
    for kind, (rule, texts) in table.items()
    for number, (line, text) in enumerate(texts, 1)
]
CASES += [
    pytest.param(rule, line, text, "", id=f"{rule}-{number}")
    for number, (rule, line, text) in enumerate(REFUSED + SILENT, 1)
]
GOOD = {path.stem: path.read_text() for path in Path(__file__).parent.glob("scripts/good/*.sh")}
RIGHT_SCRIPTS = {
    **GOOD,
    **RIGHT_LAUNCHES,
    **{f"wording-{number}": text for number, text in enumerate(RIGHT, 1)},
}


@pytest.mark.parametrize(("rule", "line", "text", "level"), CASES)
def test_a_mistake_is_found_where_it_is(rule: str, line: int, text: str, level: str) -> None:
    """rule: several that may tell it, or empty: any. level: empty for that of a mistake, in a text
    that is whole."""
    whole = script(text) if level else text
    site = SITE if rule == "over-the-limit" else None
    found = lint(read_script(whole), site, better=level == "better")
    told = [(one.rule, one.line, one.level) for one in found]
    at_line = [row for row in told if row[1] == line and row[2] == (level or row[2])]
    assert any(not rule or row[0] in rule.split("|") for row in at_line), (told, whole)


@pytest.mark.parametrize("name", RIGHT_SCRIPTS)
@pytest.mark.parametrize("version", ["", "24.11"])
def test_a_right_script_is_left_alone(name: str, version: str) -> None:
    site = CachedSite(parse_version(version)) if version else None
    text = RIGHT_SCRIPTS[name]
    assert lint(read_script(text), site) == []
    assert fix(text) == text


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


def test_blanks_of_web_pages_are_written_anew() -> None:
    for text in (one for rule, _, one in REFUSED if rule == "typographic-dash"):
        after = fix(text)
        assert after == text.replace("\u00a0", " ").replace("\u200b", " ")
        assert lint(read_script(after)) == []


def test_a_file_in_utf_16_is_called_so() -> None:
    for code in ("utf-16", "utf-16-le", "utf-16-be"):
        text = (BASH + "#SBATCH -n1\nsrun ./a\n").encode(code).decode("utf-8", "surrogateescape")
        assert ["UTF-16" in one.reason for one in lint(read_script(text))] == [True]
        assert fix(text) == text


def test_bytes_that_are_no_text_and_odd_names_make_no_bad_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = "my job\udce9.sh"
    Path(os.fsencode(name).decode("utf-8", "surrogateescape")).write_bytes(
        b"#!/bin/bash\n#SBATCH --gres=gpu:1:v100 # caf\xe9\nsrun ./a\n"
    )
    for form in ("json", "sarif"):
        assert main(["slurm", "lint", f"--format={form}", "--fix", name]) == 1
        said = json.loads(capsys.readouterr().out)
        json.dumps(said, ensure_ascii=False).encode()  # strictly
    (result,) = said["runs"][0]["results"] or [None]
    assert result is None
    assert main(["slurm", "lint", "--format=sarif", name]) == 1
    (result,) = json.loads(capsys.readouterr().out)["runs"][0]["results"]
    where = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert where == "my%20job%E9.sh"
