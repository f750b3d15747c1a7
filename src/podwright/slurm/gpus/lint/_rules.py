"""The rules: each finds one kind of mistake, and says on what evidence it calls it one.

Two levels. A *mistake* is something that Slurm refuses, or that does not do what the line plainly
wants. What *could be better* works, or may be meant; it is told only to those who ask for it.
A correction is *sure* where it cannot be wrong; only those are applied by `--fix`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple

from podwright.slurm.gpus.lint._facts import Facts, facts_of
from podwright.slurm.gpus.lint._script import Script
from podwright.slurm.gpus.lint._site_cache import Site

Level = Literal["mistake", "better"]


class Finding(NamedTuple):
    """One finding. `line` from 1, `text` that line as it stands; `corrected` as it should read
    ("" where there is no one line), `before`: it is a new line to stand before `line`, `gone`:
    the line should not be there; `whole`: the whole script as it should read; `sure`: --fix
    applies it."""

    rule: str
    line: int
    text: str
    reason: str
    corrected: str = ""
    sure: bool = False
    before: bool = False
    level: Level = "mistake"
    whole: str = ""


class Found(NamedTuple):
    """What a rule yields: the finding without its rule's name, text and level."""

    line: int
    reason: str
    corrected: str = ""
    sure: bool = False
    before: bool = False
    level: Level | None = None  # another than the rule's
    whole: str = ""


class Case(NamedTuple):
    """What a rule looks at."""

    script: Script
    site: Site
    facts: Facts


Check = Callable[[Case], Iterator[Found]]


class Rule(NamedTuple):
    """A rule. `says` is its short description; `evidence` a test that shows it on real Slurm
    (tests/…::name) or the page that documents it (https://…); `fix` what --fix does."""

    id: str
    level: Level
    says: str
    evidence: str
    check: Check
    fix: str = ""


_RULES: dict[str, Rule] = {}


def rule(
    id: str, level: Level, says: str, evidence: str, fix: str = ""
) -> Callable[[Check], Check]:
    """Register a check as a rule."""

    def register(check: Check) -> Check:
        _RULES[id] = Rule(id, level, says, evidence, check, fix)
        return check

    return register


def rules() -> dict[str, Rule]:
    """All rules, by id."""
    from podwright.slurm.gpus.lint import (
        _rules_counts,
        _rules_launch,
        _rules_limits,
        _rules_network,
        _rules_read,
        _rules_steps,
        _rules_values,
    )

    for module in (
        _rules_read,
        _rules_values,
        _rules_counts,
        _rules_limits,
        _rules_launch,
        _rules_steps,
        _rules_network,
    ):
        assert module  # each registers its own
    return _RULES


def lint(
    script: Script, site: Site | None = None, *, better: bool = False, only: Iterable[str] = ()
) -> list[Finding]:
    """All mistakes by line, and with `better` what could be better; `only` these rules.

    Rules that the script itself ignores (`# podwright: ignore RULE`) are left out.
    """
    case = Case(script, site or Site(), facts_of(script))
    wanted = set(only)
    ignored = _ignored(script)
    findings: list[Finding] = []
    for one in rules().values():
        if (wanted and one.id not in wanted) or one.id in ignored:
            continue
        for found in one.check(case):
            level = found.level or one.level
            if level == "better" and not better:
                continue
            findings.append(
                Finding(
                    one.id,
                    found.line,
                    script.at(found.line),
                    found.reason,
                    found.corrected,
                    found.sure,
                    found.before,
                    level,
                    found.whole,
                )
            )
    return sorted(set(findings), key=lambda f: (f.line, f.rule))


def _ignored(script: Script) -> set[str]:
    """The rules that comments of the script name: `# podwright: ignore RULE, RULE`."""
    found: set[str] = set()
    for line in script.lines:
        head, colon, said = line.lstrip("# \t").partition("podwright: ignore ")
        if line.lstrip().startswith("#") and colon and not head:
            found |= set(said.replace(",", " ").split())
    return found
