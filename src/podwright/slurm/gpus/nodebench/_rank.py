"""What each node of a round runs: it measures itself, or with its partner, and says so."""

from __future__ import annotations

import json
import os
import sys

from podwright.slurm.gpus.nodebench import _measures as ways

#: In front of the line, so that what else a step prints is told from it.
MARK = "podwright-bench "
#: Holds the token: not on the command line, where everybody reads it.
TOKEN = "PODWRIGHT_BENCH_TOKEN"


def main(task: dict[str, object]) -> int:
    """task: pairs, way, port, seconds; no pairs: inside the node."""
    node = ways.own_name(os.environ)
    found: dict[str, object] = {"node": node}
    pairs = task["pairs"]
    assert isinstance(pairs, list)
    try:
        if not pairs:
            names = _gpus()
            found["gpus"] = names
            found["within"] = ways.within(len(names), float(str(task["seconds"])), os.environ)
        else:
            pair = next(pair for pair in pairs if node in pair)
            meeting = ways.Meeting(
                ways.address(pair[0]),
                int(str(task["port"])),
                bytes.fromhex(os.environ[TOKEN]),
                pair[0] == node,
                float(str(task["seconds"])),
            )
            found["rate"] = ways.PAIRS[str(task["way"])](meeting)
    except Exception as error:  # what went wrong is an answer: the node cannot do it
        found["error"] = f"{type(error).__name__}: {error}"[:200]
    os.write(1, f"{MARK}{json.dumps(found)}\n".encode())
    return 0


def _gpus() -> list[str]:
    """The name of each GPU that this job has here."""
    from podwright.hosts.gpus import take_gpus, visible

    found = take_gpus(os.environ)
    for library in found.libraries:
        library.close()
    return [gpu.name for gpu in visible(os.environ, found.gpus)]


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
