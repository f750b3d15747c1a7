"""The program that each node of a round runs: it measures itself, or itself with its partner, and
prints the answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from podwright.gpu.nodebench import _measures as ways

#: The prefix of the answer's line, which tells it apart from the other output of a step.
MARK = "podwright-bench "
#: The variable that holds the token. Everybody could read it on the command line.
TOKEN = "PODWRIGHT_BENCH_TOKEN"
#: How far the ports of two GPUs lie apart. Each round takes a port, so this limits the rounds.
APART = 32


def main(task: dict[str, object]) -> int:
    """Run the task and print the answer. task: pairs, way, port, seconds; without pairs the node
    measures itself. rails: how many GPUs of each node meet the same GPU of the other, all at once.
    gpu: measure only this one."""
    node = ways.own_name(os.environ)
    answer: dict[str, object] = {"node": node}
    pairs = task["pairs"]
    assert isinstance(pairs, list)
    try:
        if not pairs:
            names = _gpus()
            answer["gpus"] = names
            answer["within"] = ways.within(len(names), float(str(task["seconds"])), os.environ)
        else:
            rails = int(str(task.get("rails", 1)))
            if rails > 1 and "gpu" not in task:
                answer["rails"] = rates = _all_at_once(task, rails)
                answer["rate"] = min(rates)
            else:
                pair = next(pair for pair in pairs if node in pair)
                answer["rate"] = _meet(task, pair, pair[0] == node)
    except Exception as error:  # the error is the answer: this node cannot do it
        answer["error"] = f"{type(error).__name__}: {error}"[:200]
    os.write(1, f"{MARK}{json.dumps(answer)}\n".encode())
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
    """Return the rate of each GPU, each measured by its own process. Raises RuntimeError if one
    fails.
    """
    own = [sys.executable, "-P", "-m", "podwright.gpu.nodebench._rank"]
    running = [
        subprocess.Popen([*own, json.dumps({**task, "gpu": gpu})], stdout=subprocess.PIPE)
        for gpu in range(rails)
    ]
    rates = []
    for gpu, text in enumerate([process.communicate()[0].decode() for process in running]):
        _, mark, line = text.rpartition(MARK)
        answer = json.loads(line) if mark else {"error": "it ended without an answer"}
        if "rate" not in answer:
            raise RuntimeError(f"GPU {gpu}: {answer['error']}")
        rates.append(float(answer["rate"]))
    return rates


def _gpus() -> list[str]:
    """Return the name of each GPU of this job on this node."""
    from podwright.hosts.gpus import take_gpus, visible

    hardware = take_gpus(os.environ)
    for library in hardware.libraries:
        library.close()
    return [gpu.name for gpu in visible(os.environ, hardware.gpus)]


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
