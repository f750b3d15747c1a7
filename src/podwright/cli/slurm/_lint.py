"""`podwright slurm lint`: the mistakes of a job script, with the corrected lines."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from podwright.cli.shared import _option_table as opt
from podwright.cli.shared._verb import Verb
from podwright.errors import InvalidRequest

if TYPE_CHECKING:
    from podwright.gpu.lint import CachedSite, Finding

_FORMATS = ("text", "json", "sarif", "github")


class LintOptions(opt.OptionTable):
    """The options of `lint`."""

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


def _run(arguments: LintOptions) -> int:
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
    site = _site(arguments)
    if note := release_note(site.version):
        print(f"Note: {note}.", file=sys.stderr)
    better = arguments.level == "better"
    several = len(arguments.scripts) > 1
    listed: list[tuple[str, list[Finding]]] = []
    changes: list[dict[str, Any]] = []
    for path in arguments.scripts:
        text = _read(path)
        if arguments.jobs_only and "#SBATCH" not in text:
            continue
        if arguments.fix:
            after = lint.fix(text, site, better=better, name=path)
            change = lint.difference(text, after, path)
            if arguments.write and after != text:
                _replace(path, after)
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
    _print(form, listed, changes)
    pending = any(finding["diff"] for finding in changes) and not arguments.write
    return 1 if pending or any(findings for _, findings in listed) else 0


def _print(form: str, listed: Any, changes: list[dict[str, Any]]) -> None:
    import json

    from podwright.gpu import lint

    if form == "json":
        print(json.dumps(lint.as_rows(listed) + changes, indent=2))
    elif form == "sarif":
        from podwright._version import __version__

        print(json.dumps(lint.as_sarif(listed, __version__), indent=2))
    elif form == "github":
        for line in lint.as_annotations(listed):
            print(line)


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


def _site(arguments: LintOptions) -> CachedSite:
    """Return the site according to the options, and otherwise according to its Slurm."""
    import time

    from podwright.gpu.lint import CachedSite, find_site, read_help
    from podwright.slurm.site.ask import ask_slurm
    from podwright.slurm.site.releases import parse_version

    named = arguments.slurm_version or arguments.topology or arguments.sbatch_help
    site = CachedSite() if named else find_site(ask_slurm, cache(), time.time())
    if arguments.slurm_version:
        site = site._replace(version=parse_version(arguments.slurm_version))
    if arguments.topology:
        site = site._replace(topology=arguments.topology)
    if arguments.sbatch_help:
        site = site._replace(options=read_help(_read(arguments.sbatch_help)))
    return site


def cache() -> str:
    """Return the path of the file in which the site's answers are kept."""
    import os

    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(home, "podwright", "slurm-site.json")


def _read(path: str) -> str:
    import sys

    try:
        if path == "-" and not sys.stdin:
            raise OSError(0, "standard input is closed")
        if path == "-":
            return sys.stdin.buffer.read().decode("utf-8", "surrogateescape")
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as script:
            return script.read()
    except OSError as error:
        from podwright.errors import NotFound

        raise NotFound(f"{path}: {(error.strerror or 'cannot be read').lower()}") from error


def _replace(path: str, text: str) -> None:
    """Replace a file's text atomically, and keep its mode. A link stays a link."""
    import os
    import tempfile

    if path == "-":
        raise InvalidRequest("--write needs a file, not -", would_work="lint --fix - < SCRIPT")
    real = os.path.realpath(path)
    mode = os.stat(real).st_mode & 0o7777
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(real), prefix=".lint-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape", newline="") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, real)
    except BaseException:
        os.unlink(temporary)
        raise


VERBS = (
    Verb(
        "lint",
        LintOptions,
        _run,
        help="find the mistakes in a job script",
        description="Find the mistakes in a job script: line, reason, and the corrected line. "
        "Exit code 1 where there are any.",
    ),
)
