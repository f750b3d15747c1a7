"""Applies the rules. Each rule finds one kind of mistake and names its evidence.

There are two levels. A *mistake* is something that Slurm refuses, or that does not do what the line
plainly wants. Something that *could be better* works, or may be intended; it is reported only on
request. A correction is *sure* where it cannot be wrong, and `--fix` applies only sure corrections.
"""

from __future__ import annotations

from collections.abc import Iterable

from podwright import plugins
from podwright.gpu.lint._rule_types import _RULES_BY_ID, Case, Finding, Rule
from podwright.gpu.lint._script import Script
from podwright.gpu.lint._script_counts import job_facts
from podwright.gpu.lint._site_cache import CachedSite


def rules() -> dict[str, Rule]:
    """Return all rules, by id."""
    from podwright.gpu.lint import (
        _rules_conflicts,
        _rules_counts,
        _rules_launch,
        _rules_network,
        _rules_steps,
        _rules_syntax,
        _rules_values,
    )

    for rule_module in (
        _rules_syntax,
        _rules_values,
        _rules_counts,
        _rules_conflicts,
        _rules_launch,
        _rules_steps,
        _rules_network,
    ):
        assert rule_module  # each registers its own rules
    return _RULES_BY_ID | plugins.load_all(plugins.LINT_RULES, Rule)


def lint(
    script: Script,
    site: CachedSite | None = None,
    *,
    better: bool = False,
    only_rules: Iterable[str] = (),
) -> list[Finding]:
    """Return the mistakes, by line. `better` adds what could be better; `only_rules` limits the
    rules.

    Rules that the script itself ignores (`# podwright: ignore RULE`) are left out.
    """
    lint_case = Case(script, site or CachedSite(), job_facts(script))
    selected_rules = set(only_rules)
    ignored = _ignored_rules(script)
    findings: list[Finding] = []
    for rule in rules().values():
        if (selected_rules and rule.id not in selected_rules) or rule.id in ignored:
            continue
        for violation in rule.check(lint_case):
            level = violation.level or rule.level
            if rule.id in _TEMPLATE_RULES and (script.template or script.is_prose):
                level = "better"  # nobody means to submit it unchanged
            if level == "better" and not better:
                continue
            findings.append(
                Finding(
                    rule.id,
                    violation.line,
                    script.at(violation.line),
                    violation.reason,
                    violation.corrected,
                    violation.sure,
                    violation.before,
                    level,
                    violation.whole,
                )
            )
    return sorted(set(findings), key=lambda f: (f.line, f.rule))


#: What a template, or a text with a script in it, may contain on purpose.
_TEMPLATE_RULES = frozenset(
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


def _ignored_rules(script: Script) -> set[str]:
    """Return the rules that comments of the script name: `# podwright: ignore RULE, RULE`."""
    rule_ids: set[str] = set()
    for line in script.lines:
        leading_text, ignore_marker, rule_list = line.lstrip("# \t").partition("podwright: ignore ")
        if line.lstrip().startswith("#") and ignore_marker and not leading_text:
            rule_ids |= set(rule_list.replace(",", " ").split())
    return rule_ids
