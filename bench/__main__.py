"""Runs the named benchmarks, or all; prints one JSON object a line as each figure is ready.

`NAME:WHICH` is a part of one that has parts: its `run` is told which.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import sys
import tempfile

import bench


def main(names: list[str]) -> int:
    known = [m.name for m in pkgutil.iter_modules(bench.__path__) if not m.name.startswith("_")]
    unknown = [name for name in names if name.partition(":")[0] not in known]
    if unknown:
        print(f"bench: no benchmark {unknown[0]!r}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="podwright-bench-") as folder:
        # Servers that a benchmark starts keep nothing outside it, their agents' key included.
        os.environ["XDG_STATE_HOME"] = folder
        _print_figures(names or known)
    return 0


def _print_figures(names: list[str]) -> None:
    for word in names:
        name, _, which = word.partition(":")
        run = importlib.import_module(f"bench.{name}").run
        for figure in run(which) if which else run():
            value = figure["value"]
            figure["value"] = float(f"{value:.5g}") if isinstance(value, float) else value
            print(json.dumps(figure), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
