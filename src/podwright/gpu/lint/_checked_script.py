"""A job script as `podwright slurm lint` checks it: its findings, and its corrections."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from podwright.gpu.lint._apply_rules import lint
from podwright.gpu.lint._fix import difference, fix
from podwright.gpu.lint._formats import as_text, whole_text
from podwright.gpu.lint._rule_types import Finding
from podwright.gpu.lint._rules_starts import NOT_JUDGED
from podwright.gpu.lint._rules_syntax import UNKNOWN_OPTION
from podwright.gpu.lint._rules_values import UNKNOWN_PARTITION
from podwright.gpu.lint._script import read_script
from podwright.gpu.lint._script_files import read_beside, replace_file
from podwright.gpu.lint._site_cache import CachedSite


class LintSettings(NamedTuple):
    """What is looked for, and what is done about it.

    better: whether to find what could be better, too. ignore: rules that are skipped. fix: whether
    to make the corrections that are sure; write: in the file.
    """

    better: bool = False
    ignore: Collection[str] = ()
    fix: bool = False
    write: bool = False


class CheckedScript(NamedTuple):
    """A script with what is wrong in it after its corrections, which `change` has as a diff.

    left_out: what could not be judged, where nothing wrong was found.
    """

    path: str
    findings: list[Finding]
    change: str
    settings: LintSettings
    left_out: tuple[str, ...] = ()

    def lines(self, *, alone: bool) -> list[str]:
        """Return the findings for people. alone: whether it is the only script.

        Partitions that the site lacks are named once for all scripts: see foreign_partitions.
        """
        listed_findings = [
            finding for finding in self.findings if alone or finding.rule != UNKNOWN_PARTITION
        ]
        lines = as_text(self.path, listed_findings)
        if not self.findings and not self.change:
            lines.append("; ".join([f"{self.path}: no mistakes found", *self.left_out]))
        return lines

    def change_row(self) -> dict[str, object]:
        """Return the corrections for programs."""
        return {
            "file": whole_text(self.path),
            "diff": whole_text(self.change),
            "written": self.settings.write,
        }


def check_script(
    path: str, script_text: str, site: CachedSite, settings: LintSettings
) -> CheckedScript:
    """Return what is wrong in a script, and correct it. Raises InvalidRequest where it is no file
    that can be written.
    """
    diff = ""
    if settings.fix:
        fixed_text = fix(script_text, site, better=settings.better, script_name=path)
        diff = difference(script_text, fixed_text, path)
        if settings.write and fixed_text != script_text:
            replace_file(path, fixed_text)
        script_text = fixed_text
    script = read_script(script_text, path, read_beside(path))
    findings = [
        finding
        for finding in lint(script, site, better=settings.better)
        if finding.rule not in settings.ignore
    ]
    # An option that no release of Slurm has may be a plugin's: nobody can say so but the site.
    unsure = [NOT_JUDGED, UNKNOWN_OPTION]
    left_out = () if findings else lint(script, site, better=True, only_rules=unsure)
    return CheckedScript(path, findings, diff, settings, tuple(_with_line(f) for f in left_out))


def _with_line(finding: Finding) -> str:
    if finding.rule == NOT_JUDGED:
        return finding.reason  # names the line of each launch
    return f"{finding.reason} (line {finding.line})"
