"""What a rule is and what it finds: the values, and the list in which rules register."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

from podwright.gpu.lint._job_facts import JobFacts
from podwright.gpu.lint._launches import Launch
from podwright.gpu.lint._script import Script
from podwright.gpu.lint._site_cache import CachedSite

Level = Literal["mistake", "better"]


class Finding(NamedTuple):
    """One finding.

    `line` counts from 1, and `text` is that line. `evidence` is who says so, as its rule has it.
    `corrected` is the corrected line ("" if there is no single one). `before`: it is a new line to
    insert before `line`. `whole`: the whole corrected script. `sure`: whether --fix applies it.
    """

    rule: str
    line: int
    text: str
    reason: str
    evidence: str
    corrected: str = ""
    sure: bool = False
    before: bool = False
    level: Level = "mistake"
    whole: str = ""


class Found(NamedTuple):
    """The result of a rule: the finding without its rule's name, text and level."""

    line: int
    reason: str
    corrected: str = ""
    sure: bool = False
    before: bool = False
    level: Level | None = None  # another than the rule's
    whole: str = ""


class Case(NamedTuple):
    """The script and the site that a rule examines, the job's numbers, and what it starts."""

    script: Script
    site: CachedSite
    facts: JobFacts
    launches: Sequence[Launch] = ()


Check = Callable[[Case], Iterator[Found]]


class _RuleFields(NamedTuple):
    id: str
    level: Level
    says: str
    evidence: str
    check: Check
    fix: str = ""


class Rule(_RuleFields):
    """A rule.

    `says` is its short description. `evidence` is a test that shows it on real Slurm
    (tests/…::name), or the page that documents it (https://…): a rule without evidence raises
    ValueError, so that no finding is without. `fix` describes what --fix does.
    """

    __slots__ = ()

    def __new__(
        cls, id: str, level: Level, says: str, evidence: str, check: Check, fix: str = ""
    ) -> Rule:
        if not evidence:
            raise ValueError(f"nobody says what the rule {id} says: it needs its evidence")
        return super().__new__(cls, id, level, says, evidence, check, fix)


_RULES_BY_ID: dict[str, Rule] = {}


def rule(
    id: str, level: Level, says: str, evidence: str, fix: str = ""
) -> Callable[[Check], Check]:
    """Register a check as a rule."""

    def register(check: Check) -> Check:
        _RULES_BY_ID[id] = Rule(id, level, says, evidence, check, fix)
        return check

    return register
