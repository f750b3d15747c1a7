"""`podwright metrics`: the rules and dashboards for a site's Prometheus and Grafana."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

_EXAMPLES = """\
examples:
  podwright metrics rules > podwright-rules.yml        alerts for Prometheus
  podwright metrics dashboards > podwright.json        a board for Grafana (Import)
  podwright metrics write monitoring                   all three files into a folder"""
_WORDS = {
    "scrape": ("prometheus.yml", "print whom Prometheus asks"),
    "rules": ("podwright-rules.yml", "print alert rules for Prometheus"),
    "dashboards": ("podwright-board.json", "print a board for Grafana"),
}


def add_parser(verbs: Any, _words: Sequence[str] = ()) -> None:
    """Add the verb and its nouns."""
    words = verbs.add_parser(
        "metrics",
        help="print alert rules, a dashboard and settings for Prometheus and Grafana",
        description="Print what Prometheus and Grafana need to watch servers, agents and Slurm's "
        "service.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    nouns = words.add_subparsers(metavar="WHAT", dest="what", required=True)
    for noun, (_, description) in _WORDS.items():
        nouns.add_parser(
            noun, help=description, description=f"{description[0].upper()}{description[1:]}."
        )
    write = nouns.add_parser("write", help="write all of them", description="Write all of them.")
    write.add_argument("folder", metavar="FOLDER", help="where; what is there already stays")


def main(arguments: argparse.Namespace) -> int:
    """Print or write the files. Raises errors.AlreadyExists, which changes nothing."""
    from podwright import monitoring

    if arguments.what != "write":
        sys.stdout.write(monitoring.read(_WORDS[arguments.what][0]))
        return 0
    from pathlib import Path

    from podwright.errors import AlreadyExists

    folder = Path(arguments.folder)
    for name in monitoring.NAMES:
        if (folder / name).exists():
            raise AlreadyExists(
                f"{folder / name} is there already",
                operation=f"write the files to {folder}",
                would_work="choose another folder, or take it away first",
            )
    folder.mkdir(parents=True, exist_ok=True)
    for name in monitoring.NAMES:
        (folder / name).write_text(monitoring.read(name), encoding="utf-8")
        print(folder / name)
    return 0
