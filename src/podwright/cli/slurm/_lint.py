"""`podwright slurm lint`: the mistakes of a job script, with the corrected lines."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from podwright import option_rows as opt
from podwright._version import __version__
from podwright.cli.shared._verb import Verb
from podwright.errors import InvalidRequest

if TYPE_CHECKING:
    from podwright.gpu.lint import Finding

_FORMATS = ("text", "json", "sarif", "github")


class _LintOptions(opt.OptionTable):
    scripts = opt.arguments("the job script, - for input", "SCRIPT", "*")
    level = opt.choice(
        "mistakes alone (the default), or what could be better too",
        ("mistake", "better"),
        "mistake",
    )
    fix = opt.flag("show the corrections that are sure, as a diff")
    write = opt.flag("with --fix: change the file")
    ignore = opt.several("skip this rule", "RULE", str)
    jobs_only = opt.flag("skip files without a #SBATCH line")
    rules = opt.flag("list the rules and their evidence")
    slurm_version = opt.optional("of the site: 22.05, 24.11 …", "V")
    topology = opt.choice("the site's topology plugin", ("tree", "block", "none"), None)
    sbatch_help = opt.optional(
        "what `sbatch --help` prints at the site: its plugins' options are known then", "FILE"
    )
    format = opt.choice("output format", _FORMATS, "text")
    json = opt.flag("the same as --format=json")


def _run(arguments: _LintOptions) -> int:
    from podwright.gpu import lint
    from podwright.slurm.reader import release_note

    form = "json" if arguments.json else arguments.format
    if arguments.rules:
        return _rules(form)
    if arguments.write and not arguments.fix:
        raise InvalidRequest("--write belongs to --fix", would_work="lint --fix --write SCRIPT")
    if not arguments.scripts:
        raise InvalidRequest("no script is named", would_work="lint SCRIPT, or lint - < SCRIPT")
    unknown = [name for name in arguments.ignore if name not in lint.rules()]
    if unknown:
        raise InvalidRequest(f"there is no rule {unknown[0]}", would_work="lint --rules lists them")
    site = lint.chosen_site(arguments.slurm_version, arguments.topology, arguments.sbatch_help)
    if note := release_note(site.version):
        print(f"Note: {note}.", file=sys.stderr)
    better = arguments.level == "better"
    several = len(arguments.scripts) > 1
    listed: list[tuple[str, list[Finding]]] = []
    changes: list[dict[str, object]] = []
    for path in arguments.scripts:
        text = lint.read_file(path)
        if arguments.jobs_only and "#SBATCH" not in text:
            continue
        if arguments.fix:
            after = lint.fix(text, site, better=better, name=path)
            change = lint.difference(text, after, path)
            if arguments.write and after != text:
                lint.replace_file(path, after)
            if form == "text":
                print(change, end="")
            texts = {"file": lint.whole_text(path), "diff": lint.whole_text(change)}
            changes.append({**texts, "written": arguments.write})
            text = after
        of_script = lint.lint(lint.read_script(text, path), site, better=better)
        findings = [finding for finding in of_script if finding.rule not in arguments.ignore]
        listed.append((path, findings))
        if form == "text":
            apart = [
                finding
                for finding in findings
                if not several or finding.rule != lint.UNKNOWN_PARTITION
            ]
            for line in lint.as_text(path, apart):
                print(line)
            if not findings and not (arguments.fix and change):
                print(f"{path}: no mistakes found")
    if form == "text" and several and (foreign := lint.foreign_partitions(listed)):
        print(foreign)
    if form in ("json", "sarif"):
        import json

        rows = lint.as_rows(listed) + changes
        print(json.dumps(rows if form == "json" else lint.as_sarif(listed, __version__), indent=2))
    elif form == "github":
        for line in lint.as_annotations(listed):
            print(line)
    pending = any(finding["diff"] for finding in changes) and not arguments.write
    return 1 if pending or any(findings for _, findings in listed) else 0


def _rules(form: str) -> int:
    import json

    from podwright.gpu.lint import rules

    rows = [
        {"rule": r.id, "level": r.level, "says": r.says, "fix": r.fix, "evidence": r.evidence}
        for r in rules().values()
    ]
    if form == "json":
        print(json.dumps(rows, indent=2))
        return 0
    for row in rows:
        print(f"{row['rule']} ({row['level']}): {row['says']}")
        if row["fix"]:
            print(f"    --fix {row['fix']}")
        print(f"    evidence: {row['evidence']}")
    return 0


VERBS = (
    Verb(
        "lint",
        _LintOptions,
        _run,
        help="find the mistakes in a job script",
        description="Find the mistakes in a job script: line, reason, and the corrected line. "
        "Exit code 1 where there are any.",
    ),
)
