"""`podwright slurm lint`: the mistakes of a job script, and how the lines should read."""

from __future__ import annotations

import argparse
from typing import Any


def add_parser(verbs: Any) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "lint",
        help="find the mistakes in a job script",
        description="Find the mistakes in a job script: line, reason, and the corrected line. "
        "Exit code 1 where there are any.",
    )
    parser.add_argument("scripts", metavar="SCRIPT", nargs="+", help="the job script")
    parser.add_argument(
        "--fix", action="store_true", help="show the corrections that are sure, as a diff"
    )
    parser.add_argument("--write", action="store_true", help="with --fix: change the file")
    parser.add_argument("--slurm-version", metavar="V", help="of the site: 22.05, 24.11 …")
    parser.add_argument(
        "--topology", choices=("tree", "block", "none"), help="the site's topology plugin"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run_slurm=_run)


def _run(arguments: argparse.Namespace) -> int:
    import os

    from podwright.slurm import lint
    from podwright.slurm.requests import invalid

    if arguments.write and not arguments.fix:
        raise invalid("--write belongs to --fix", would_work="lint --fix --write SCRIPT")
    site = _site(arguments)
    shown: list[dict[str, Any]] = []
    any_left = False
    for path in arguments.scripts:
        text = _read(path)
        findings = lint.lint(lint.read_script(text), site)
        change = ""
        if arguments.fix:
            after = lint.fixed(text, findings)
            change = lint.difference(text, after, path)
            if arguments.write and after != text:
                _replace(path, after)
                findings = lint.lint(lint.read_script(after), site)
        any_left |= bool(findings)
        if arguments.json:
            from dataclasses import asdict

            shown += [asdict(finding) | {"file": os.fspath(path)} for finding in findings]
            if arguments.fix:
                shown.append({"file": path, "diff": change, "written": arguments.write})
        else:
            _show(path, findings, change, arguments)
    if arguments.json:
        import json

        print(json.dumps(shown, indent=2))
    return 1 if any_left else 0


def _show(path: str, findings: Any, change: str, arguments: argparse.Namespace) -> None:
    if arguments.fix:
        print(change, end="")
    for finding in findings:
        if arguments.fix and finding.sure and not arguments.write:
            continue
        print(f"{path}:{finding.line}: {finding.rule}: {finding.reason}")
        if finding.corrected:
            if not finding.before:
                print(f"    - {finding.text.strip()}")
            print(f"    + {finding.corrected.strip()}")
    if not findings and not change:
        print(f"{path}: no mistakes found")


def _site(arguments: argparse.Namespace) -> Any:
    """Version and topology as said, or as this site's Slurm says."""
    import re

    from podwright.slurm.lint import Site
    from podwright.slurm.requests import ask_slurm, parse_version, read_version

    version = parse_version(arguments.slurm_version) if arguments.slurm_version else None
    topology = arguments.topology or ""
    if version is None or not topology:
        config = ask_slurm(["scontrol", "show", "config"])
        version = version or read_version(config)
        plugin = re.search(r"^TopologyPlugin\s*=\s*topology/(\w+)", config, re.M)
        topology = topology or (plugin[1] if plugin else "")
    return Site(version, topology)


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as script:
            return script.read()
    except OSError as error:
        from podwright.wire import NotFound

        raise NotFound(f"{path}: {(error.strerror or 'cannot be read').lower()}") from error


def _replace(path: str, text: str) -> None:
    """Put the new text in place at once, with the old file's mode; a link stays a link."""
    import os
    import tempfile

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
