"""`podwright slurm lint`: the mistakes of a job script, with the corrected lines."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from podwright._version import __version__
from podwright.cli.shared._print_result import show_result
from podwright.cli.shared._verb_definition import Verb
from podwright.errors import InvalidRequest
from podwright.ground import option_rows as opt

if TYPE_CHECKING:
    from podwright.gpu.lint import CheckedScript

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
        show_result(form == "json", lint.rule_rows(), lint.rules_text)
        return 0
    if arguments.write and not arguments.fix:
        raise InvalidRequest("--write belongs to --fix", would_work="lint --fix --write SCRIPT")
    if not arguments.scripts:
        raise InvalidRequest(
            "no script is named", would_work="podwright slurm lint SCRIPT; - reads standard input"
        )
    unknown = [name for name in arguments.ignore if name not in lint.rules()]
    if unknown:
        raise InvalidRequest(f"there is no rule {unknown[0]}", would_work="lint --rules lists them")
    site = lint.chosen_site(arguments.slurm_version, arguments.topology, arguments.sbatch_help)
    if note := release_note(site.version):
        print(f"Note: {note}.", file=sys.stderr)
    settings = lint.LintSettings(
        arguments.level == "better", arguments.ignore, arguments.fix, arguments.write
    )
    several = len(arguments.scripts) > 1
    checked: list[CheckedScript] = []
    for path in arguments.scripts:
        text = lint.read_file(path)
        if arguments.jobs_only and "#SBATCH" not in text:
            continue
        script = lint.check_script(path, text, site, settings)
        checked.append(script)
        if form == "text":
            print(script.change, end="")
            for line in script.lines(alone=not several):
                print(line)
    listed = [(script.path, script.findings) for script in checked]
    if form == "text" and several and (foreign := lint.foreign_partitions(listed)):
        print(foreign)
    if form in ("json", "sarif"):
        import json

        rows = lint.as_rows(listed)
        rows += [script.change_row() for script in checked if arguments.fix]
        print(json.dumps(rows if form == "json" else lint.as_sarif(listed, __version__), indent=2))
    elif form == "github":
        for line in lint.as_annotations(listed):
            print(line)
    pending = any(script.change for script in checked) and not arguments.write
    return 1 if pending or any(script.findings for script in checked) else 0


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
