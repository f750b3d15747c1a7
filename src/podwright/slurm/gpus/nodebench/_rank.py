"""What each node of a round runs: it measures itself, or with its partner, and says so."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from podwright.slurm.gpus.nodebench import _measures as ways

#: In front of the line, so that what else a step prints is told from it.
MARK = "podwright-bench "
#: Holds the token: not on the command line, where everybody reads it.
TOKEN = "PODWRIGHT_BENCH_TOKEN"
#: Ports from one GPU's to the next one's: as many as there may be rounds.
APART = 32


def main(task: dict[str, object]) -> int:
    """task: pairs, way, port, seconds; no pairs: inside the node. rails: so many GPUs of each node
    meet, the same one of each, all at once. gpu: this one alone."""
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
            rails = int(str(task.get("rails", 1)))
            if rails > 1 and "gpu" not in task:
                found["rails"] = rates = _all_at_once(task, rails)
                found["rate"] = min(rates)
            else:
                pair = next(pair for pair in pairs if node in pair)
                found["rate"] = _meet(task, pair, pair[0] == node)
    except Exception as error:  # what went wrong is an answer: the node cannot do it
        found["error"] = f"{type(error).__name__}: {error}"[:200]
    os.write(1, f"{MARK}{json.dumps(found)}\n".encode())
    return 0


def _meet(task: dict[str, object], pair: list[str], listens: bool) -> float:
    gpu = int(str(task.get("gpu", 0)))
    meeting = ways.Meeting(
        ways.address(pair[0]),
        int(str(task["port"])) + APART * gpu,
        bytes.fromhex(os.environ[TOKEN]),
        listens,
        float(str(task["seconds"])),
        gpu,
    )
    return ways.PAIRS[str(task["way"])](meeting)


def _all_at_once(task: dict[str, object], rails: int) -> list[float]:
    """The rate of each GPU, by a process of its own. Raises RuntimeError of one that fails."""
    own = [sys.executable, "-P", "-m", "podwright.slurm.gpus.nodebench._rank"]
    running = [
        subprocess.Popen([*own, json.dumps({**task, "gpu": gpu})], stdout=subprocess.PIPE)
        for gpu in range(rails)
    ]
    rates = []
    for gpu, text in enumerate([process.communicate()[0].decode() for process in running]):
        _, mark, line = text.rpartition(MARK)
        said = json.loads(line) if mark else {"error": "it ended without an answer"}
        if "rate" not in said:
            raise RuntimeError(f"GPU {gpu}: {said['error']}")
        rates.append(float(said["rate"]))
    return rates


def _gpus() -> list[str]:
    """The name of each GPU that this job has here."""
    from podwright.hosts.gpus import take_gpus, visible

    found = take_gpus(os.environ)
    for library in found.libraries:
        library.close()
    return [gpu.name for gpu in visible(os.environ, found.gpus)]


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
