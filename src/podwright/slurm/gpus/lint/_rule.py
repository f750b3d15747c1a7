"""What a rule is, and what it finds. Values, and the list that rules join."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from podwright.slurm.gpus.lint._facts import Facts
from podwright.slurm.gpus.lint._script import Script
from podwright.slurm.gpus.lint._site_cache import CachedSite

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
    site: CachedSite
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
