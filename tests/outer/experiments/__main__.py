"""Runs scenarios with mechanisms, one line as each ends, then the table in Markdown."""

import argparse
import sys
import time

from tests.outer.experiments import mechanisms
from tests.outer.experiments.mechanisms import MECHANISMS
from tests.outer.experiments.scenarios import SCENARIOS
from tests.outer.lab import LabError, release, sweep_dead_labs

ONLY_TIMES = {"srun true", "300 loose jobs", "array of 200"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mechanism", action="append", choices=MECHANISMS)
    parser.add_argument("--scenario", action="append", choices=SCENARIOS)
    parser.add_argument(
        "--slurm", choices=["oldest", "middle", "newest"], default="oldest", help="which release"
    )
    options = parser.parse_args()
    mechanisms.RELEASE = release(options.slurm)
    sweep_dead_labs()
    chosen = [MECHANISMS[name] for name in options.mechanism or MECHANISMS]
    rows = ["| | " + " | ".join(one.title for one in chosen) + " |"]
    rows.append("|---" * (len(chosen) + 1) + "|")
    for name in options.scenario or SCENARIOS:
        cells = []
        for mechanism in chosen:
            if mechanism.name in ("plain", "empty") and name not in ONLY_TIMES:
                cells.append("")
                continue
            start = time.monotonic()
            try:
                cell = SCENARIOS[name](mechanism)
            except LabError as error:
                cell = "broke: " + str(error).partition("\n")[0]
            cells.append(cell)
            took = time.monotonic() - start
            print(f"{name} / {mechanism.name} [{took:.0f} s]: {cell}", file=sys.stderr, flush=True)
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
