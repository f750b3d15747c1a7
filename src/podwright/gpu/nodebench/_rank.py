"""The program that each node of a round runs: it measures itself, or itself with its partner, and
prints the answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from podwright.gpu.nodebench import _measures as ways

#: The prefix of the answer's line, which tells it apart from the other output of a step.
ANSWER_LINE_PREFIX = "podwright-bench "
#: The variable that holds the token. Everybody could read it on the command line.
TOKEN = "PODWRIGHT_BENCH_TOKEN"
#: How far the ports of two GPUs lie apart. Each round takes a port, so this limits the rounds.
PORT_DISTANCE = 32


def main(task: dict[str, object]) -> int:
    """Run the task and print the answer. task: pairs, way, port, seconds; without pairs the node
    measures itself. rails: how many GPUs of each node meet the same GPU of the other, all at
    once. gpu: measure only this one.
    """
    node_name = ways.own_name(os.environ)
    answer: dict[str, object] = {"node": node_name}
    pairs = task["pairs"]
    assert isinstance(pairs, list)
    try:
        if not pairs:
            gpu_names = _job_gpu_names()
            answer["gpus"] = gpu_names
            answer["within"] = ways.within(len(gpu_names), float(str(task["seconds"])), os.environ)
        else:
            rail_count = int(str(task.get("rails", 1)))
            if rail_count > 1 and "gpu" not in task:
                answer["rails"] = rates = _measure_all_rails(task, rail_count)
                answer["rate"] = min(rates)
            else:
                pair = next(pair for pair in pairs if node_name in pair)
                answer["rate"] = _measure_pair(task, pair, pair[0] == node_name)
    except Exception as error:  # the error is the answer: this node cannot do it
        answer["error"] = f"{type(error).__name__}: {error}"[:200]
    os.write(1, f"{ANSWER_LINE_PREFIX}{json.dumps(answer)}\n".encode())
    return 0


def _measure_pair(task: dict[str, object], pair: list[str], is_listener: bool) -> float:
    gpu_index = int(str(task.get("gpu", 0)))
    meeting = ways.Meeting(
        ways.address(pair[0]),
        int(str(task["port"])) + PORT_DISTANCE * gpu_index,
        bytes.fromhex(os.environ[TOKEN]),
        is_listener,
        float(str(task["seconds"])),
        gpu_index,
    )
    return ways.PAIR_MEASURES[str(task["way"])](meeting)


def _measure_all_rails(task: dict[str, object], rail_count: int) -> list[float]:
    """Return the rate of each GPU, each measured by its own process. Raises RuntimeError if one
    fails.
    """
    rank_command = [sys.executable, "-P", "-m", "podwright.gpu.nodebench._rank"]
    processes = [
        subprocess.Popen(
            [*rank_command, json.dumps({**task, "gpu": gpu_index})], stdout=subprocess.PIPE
        )
        for gpu_index in range(rail_count)
    ]
    rates = []
    for gpu_index, process_output in enumerate(
        [process.communicate()[0].decode() for process in processes]
    ):
        _, found_mark, answer_json = process_output.rpartition(ANSWER_LINE_PREFIX)
        answer = json.loads(answer_json) if found_mark else {"error": "it ended without an answer"}
        if "rate" not in answer:
            raise RuntimeError(f"GPU {gpu_index}: {answer['error']}")
        rates.append(float(answer["rate"]))
    return rates


def _job_gpu_names() -> list[str]:
    """Return the name of each GPU of this job on this node."""
    from podwright.hosts.gpus import take_gpus, visible

    hardware = take_gpus(os.environ)
    for library in hardware.libraries:
        library.close()
    return [gpu.name for gpu in visible(os.environ, hardware.gpus)]


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
