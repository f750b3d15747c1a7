"""The rules: each finds one kind of mistake, and says on what evidence it calls it one.

Two levels. A *mistake* is something that Slurm refuses, or that does not do what the line plainly
wants. What *could be better* works, or may be meant; it is told only to those who ask for it.
A correction is *sure* where it cannot be wrong; only those are applied by `--fix`.
"""

from __future__ import annotations

from collections.abc import Iterable

from podwright import plugins
from podwright.slurm.gpus.lint._facts import facts_of
from podwright.slurm.gpus.lint._rule import _RULES, Case, Finding, Rule
from podwright.slurm.gpus.lint._script import Script
from podwright.slurm.gpus.lint._site_cache import CachedSite


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
    return _RULES | plugins.load_all(plugins.LINT_RULES, Rule)


def lint(
    script: Script,
    site: CachedSite | None = None,
    *,
    better: bool = False,
    only: Iterable[str] = (),
) -> list[Finding]:
    """All mistakes by line, and with `better` what could be better; `only` these rules.

    Rules that the script itself ignores (`# podwright: ignore RULE`) are left out.
    """
    case = Case(script, site or CachedSite(), facts_of(script))
    wanted = set(only)
    ignored = _ignored(script)
    findings: list[Finding] = []
    for one in rules().values():
        if (wanted and one.id not in wanted) or one.id in ignored:
            continue
        for found in one.check(case):
            level = found.level or one.level
            if one.id in _OF_VALUES and (script.template or script.prose):
                level = "better"  # nobody means to submit it as it stands
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


#: What a template, or notes with a script in them, may say and mean.
_OF_VALUES = frozenset(
    {
        "bad-value",
        "stray-word",
        "refused",
        "no-shebang",
        "given-twice",
        "late-directive",
        "not-expanded",
        "blanks-around-equals",
    }
)


def _ignored(script: Script) -> set[str]:
    """The rules that comments of the script name: `# podwright: ignore RULE, RULE`."""
    found: set[str] = set()
    for line in script.lines:
        head, colon, said = line.lstrip("# \t").partition("podwright: ignore ")
        if line.lstrip().startswith("#") and colon and not head:
            found |= set(said.replace(",", " ").split())
    return found
