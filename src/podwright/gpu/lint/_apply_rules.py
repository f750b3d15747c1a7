"""Applies the rules. Each rule finds one kind of mistake and names its evidence.

There are two levels. A *mistake* is something that Slurm refuses, or that does not do what the line
plainly wants. Something that *could be better* works, or may be intended; it is reported only on
request. A correction is *sure* where it cannot be wrong, and `--fix` applies only sure corrections.
Any other is made first, and offered only if the corrected script has no finding that it had not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from podwright.gpu.lint._corrections import fixed
from podwright.gpu.lint._job_facts import job_facts
from podwright.gpu.lint._launches import read_launches
from podwright.gpu.lint._rule_types import _RULES_BY_ID, Case, Finding, Rule
from podwright.gpu.lint._script import Script, read_script
from podwright.gpu.lint._site_cache import CachedSite
from podwright.ground import plugins


def rules() -> dict[str, Rule]:
    """Return all rules, by id."""
    from podwright.gpu.lint import (
        _rules_conflicts,
        _rules_gpus,
        _rules_network,
        _rules_ranks,
        _rules_starts,
        _rules_steps,
        _rules_syntax,
        _rules_values,
    )

    for rule_module in (
        _rules_syntax,
        _rules_values,
        _rules_gpus,
        _rules_conflicts,
        _rules_starts,
        _rules_ranks,
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
    ignored = _ignored_rules(script)
    selected = set(only_rules)
    judged = _judge(script, site or CachedSite(), ignored)
    return [
        finding
        if not finding.corrected or finding.sure
        else _offered(finding, script, site or CachedSite(), judged, ignored)
        for finding in judged
        if (better or finding.level == "mistake") and (not selected or finding.rule in selected)
    ]


def _judge(script: Script, site: CachedSite, ignored: Collection[str]) -> list[Finding]:
    """Return all findings of both levels, with corrections that nothing has judged yet."""
    facts = job_facts(script)
    lint_case = Case(script, site, facts, tuple(read_launches(script, facts)))
    findings: set[Finding] = set()
    for rule in rules().values():
        if rule.id in ignored:
            continue
        for violation in rule.check(lint_case):
            line, reason, corrected, sure, before, own_level, whole_script = violation
            level = own_level or rule.level
            if rule.id in _TEMPLATE_RULES and (script.template or script.is_prose):
                level = "better"  # nobody means to submit it unchanged
            findings.add(
                Finding(
                    rule.id, line, script.at(line), reason, rule.evidence, corrected, sure, before,
                    level, whole_script,
                )
            )  # fmt: skip
    return sorted(findings, key=lambda finding: (finding.line, finding.rule))


def _offered(
    finding: Finding,
    script: Script,
    site: CachedSite,
    judged: list[Finding],
    ignored: Collection[str],
) -> Finding:
    """Return the finding, without its correction unless the corrected script is judged better."""
    corrected = read_script(
        fixed(script.text, [finding._replace(sure=True)]), script.path, script.read_beside
    )
    after = Counter(f.rule for f in _judge(corrected, site, ignored))
    before = Counter(f.rule for f in judged)
    before[finding.rule] -= 1
    return finding if after <= before else finding._replace(corrected="")


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
        text, marker, rule_list = line.lstrip("# \t").partition("podwright: ignore ")
        if line.lstrip().startswith("#") and marker and not text:
            rule_ids |= set(rule_list.replace(",", " ").split())
    return rule_ids
