"""`podwright metrics`: the rules and dashboards for a site's Prometheus and Grafana."""

from __future__ import annotations

import sys
from functools import partial

from podwright.cli.shared._verb_definition import Verb, VerbGroup
from podwright.ground import option_rows as opt

_EXAMPLES = """\
examples:
  podwright metrics rules > podwright-rules.yml        alerts for Prometheus
  podwright metrics dashboards > podwright.json        a board for Grafana (Import)
  podwright metrics write monitoring                   all three files into a folder"""
_FILES = {
    "scrape": ("prometheus.yml", "print the targets that Prometheus scrapes"),
    "rules": ("podwright-rules.yml", "print alert rules for Prometheus"),
    "dashboards": ("podwright-board.json", "print a board for Grafana"),
}


class _WriteOptions(opt.OptionTable):
    folder = opt.argument("where; what is there already stays", "FOLDER")


def _print(file: str, _: opt.OptionTable) -> int:
    from podwright import monitoring

    sys.stdout.write(monitoring.read(file))
    return 0


def _write(arguments: _WriteOptions) -> int:
    """Write the files. Raises errors.AlreadyExists, which changes nothing."""
    from pathlib import Path

    from podwright import monitoring
    from podwright.errors import AlreadyExists

    folder = Path(arguments.folder)
    for name in monitoring.MONITORING_FILE_NAMES:
        if (folder / name).exists():
            raise AlreadyExists(
                f"{folder / name} is there already",
                operation=f"write the files to {folder}",
                would_work="choose another folder, or take it away first",
            )
    folder.mkdir(parents=True, exist_ok=True)
    for name in monitoring.MONITORING_FILE_NAMES:
        (folder / name).write_text(monitoring.read(name), encoding="utf-8")
        print(folder / name)
    return 0


VERBS = (
    VerbGroup(
        "podwright metrics",
        "print alert rules, a dashboard and settings for Prometheus and Grafana",
        "Print what Prometheus and Grafana need to watch servers, agents and Slurm's service.",
        _EXAMPLES,
        (
            *(
                Verb(
                    name,
                    opt.OptionTable,
                    partial(_print, file),
                    text,
                    f"{text[0].upper()}{text[1:]}.",
                )
                for name, (file, text) in _FILES.items()
            ),
            Verb("write", _WriteOptions, _write, "write all of them", "Write all of them."),
        ),
        metavar="WHAT",
    ),
)
