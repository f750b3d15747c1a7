"""Benchmarks the nodes of a job: each one by itself, then in rounds of pairs. Each round is a job
step."""

from __future__ import annotations

import json
import secrets
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from podwright.errors import Unavailable
from podwright.gpu.nodebench._expected_rates import expected as expected_of
from podwright.gpu.nodebench._rank import MARK, TOKEN
from podwright.gpu.nodebench._rounds import (
    SHARE,
    BenchVerdict,
    Pair,
    Round,
    judge,
    next_round,
)

_RANK = (sys.executable, "-P", "-m", "podwright.gpu.nodebench._rank")
_LIMIT = 120.0  # seconds of a step, beyond its measurement

#: Runs a step on nodes and returns the answers of its tasks, by node.
Step = Callable[[Sequence[str], Mapping[str, object]], dict[str, dict[str, object]]]


class Slow(NamedTuple):
    """A slow node or connection. part: a node, or two nodes for the connection between them. what:
    the measurement. rate, reference: Gb/s, measured and expected."""

    part: str
    what: str
    rate: float
    reference: float


class Bench(NamedTuple):
    """The result of a benchmark. within: rates inside nodes, by node and kind. rounds: the rate of
    each pair; for pairs that several GPUs measured, the slowest rate. slow: what is slow. errors:
    by node. Rates are in Gb/s."""

    nodes: tuple[str, ...]
    way: str
    within: dict[str, dict[str, float]]
    rounds: tuple[Round, ...]
    verdict: BenchVerdict
    slow: tuple[Slow, ...]
    errors: dict[str, str]


def bench(
    nodes: Sequence[str],
    step: Step,
    *,
    transport: str = "tcp",
    seconds: float = 2.0,
    expected: float = 0.0,
    port: int = 0,
    report: Callable[[str], None] = lambda text: None,
) -> Bench:
    """Measure nodes. Raises Unavailable.

    transport: how pairs of nodes exchange data; empty measures each node by itself alone. expected:
    Gb/s that a pair should reach; 0 takes what most pairs reach. report: is called with a line of
    progress.
    """
    errors: dict[str, str] = {}
    port = port or 20000 + secrets.randbelow(19000)
    report(f"{len(nodes)} nodes by themselves")
    task: dict[str, object] = {"pairs": [], "way": transport, "port": port, "seconds": seconds}
    answers = step(nodes, task)
    within = {node: _rates(answers.get(node, {}), errors, node) for node in nodes}
    rails = _rails(answers, nodes) if transport == "torch" else 1
    sheets = {node: _sheet(answers.get(node, {})) for node in nodes}
    suspects = sorted({slow.part for slow in _slow_within(within, sheets)})
    if suspects:  # measured once more with fewer nodes: noise disappears, a slow node stays slow
        report(f"{len(suspects)} of them again")
        answers = step(suspects, task)
        for node in suspects:
            better = _rates(answers.get(node, {}), errors, node)
            for kind, rate in within[node].items():
                within[node][kind] = max(rate, better.get(kind, 0.0))
    rounds: list[Round] = []
    behind: dict[Pair, int] = {}
    while pairs := next_round(nodes, rounds, expected) if transport else ():
        report(f"round {len(rounds) + 1}: {len(pairs)} pairs")
        busy = sorted(node for pair in pairs for node in pair)
        answers = step(
            busy, {**task, "pairs": pairs, "rails": rails, "port": port + 1 + len(rounds)}
        )
        rounds.append({pair: _pair(pair, answers, errors) for pair in pairs})
        behind |= {pair: gpu for pair in pairs if (gpu := _behind(pair, answers)) is not None}
    verdict = judge(nodes, rounds, expected)
    slow = [*_slow_pairs(verdict, rounds, behind), *_slow_within(within, sheets)]
    return Bench(tuple(nodes), transport, within, tuple(rounds), verdict, tuple(slow), errors)


def _rates(answer: Mapping[str, object], errors: dict[str, str], node: str) -> dict[str, float]:
    rates = answer.get("within")
    if isinstance(rates, dict):
        return {str(kind): float(rate) for kind, rate in rates.items()}
    errors[node] = str(answer.get("error", "gave no reason"))
    return {}


def _pair(pair: Pair, answers: Mapping[str, Mapping[str, object]], errors: dict[str, str]) -> float:
    rates = []
    for node in pair:
        answer = answers.get(node, {})
        rate = answer.get("rate")
        if isinstance(rate, float | int):
            rates.append(float(rate))
        else:
            errors[node] = str(answer.get("error", "gave no reason"))
    return min(rates) if len(rates) == 2 else 0.0


def _rails(answers: Mapping[str, Mapping[str, object]], nodes: Sequence[str]) -> int:
    """Return by how many GPUs two nodes are measured: as many as each has, at least one."""
    names = [answers.get(node, {}).get("gpus") for node in nodes]
    return max(min(len(gpus) if isinstance(gpus, list) else 0 for gpus in names), 1)


def _behind(pair: Pair, answers: Mapping[str, Mapping[str, object]]) -> int | None:
    """Return the GPU by which two nodes were slower than by their others; None: all are alike."""
    rates = answers.get(pair[0], {}).get("rails")
    if not isinstance(rates, list) or min(rates) >= SHARE * statistics.median(rates):
        return None
    return rates.index(min(rates))


def _slow_pairs(
    verdict: BenchVerdict, rounds: Sequence[Round], behind: Mapping[Pair, int]
) -> list[Slow]:
    out = []
    for node in verdict.nodes:
        rates = [
            rate for round_rates in rounds for pair, rate in round_rates.items() if node in pair
        ]
        gpus_by_part = {
            behind[pair]
            for round_rates in rounds
            for pair in round_rates
            if node in pair and pair in behind
        }
        part = f"to other nodes{_by(gpus_by_part)}"
        out.append(Slow(node, part, statistics.median(rates), verdict.reference))
    for direction in verdict.ways:
        rates = [round_rates[direction] for round_rates in rounds if direction in round_rates]
        part = f"in this direction only{_by({behind[direction]} if direction in behind else set())}"
        out.append(Slow(" to ".join(direction), part, max(rates), verdict.reference))
    return out


def _by(gpus: set[int]) -> str:
    return f", by GPU {', '.join(map(str, sorted(gpus)))}" if gpus else ""


def _sheet(answer: Mapping[str, object]) -> dict[str, float]:
    """Return what a node's GPUs should reach; empty if they differ, or are not known."""
    names = answer.get("gpus")
    if not isinstance(names, list) or len({*map(str, names)}) != 1:
        return {}
    return expected_of(str(names[0]), len(names))


def _slow_within(
    within: Mapping[str, Mapping[str, float]], sheets: Mapping[str, Mapping[str, float]]
) -> list[Slow]:
    """Return nodes below what their GPUs should reach, or below the median of three or more
    nodes.
    """
    out = []
    for kind in dict.fromkeys(kind for rates in within.values() for kind in rates):
        values = {node: rates[kind] for node, rates in within.items() if kind in rates}
        middle = statistics.median(values.values()) if len(values) > 2 else 0.0
        for node, rate in values.items():
            reference = max(middle, sheets[node].get(kind, 0.0))
            if rate < SHARE * reference:
                out.append(Slow(node, kind, rate, reference))
    return out


def srun_step(environ: Mapping[str, str]) -> Step:
    """A function that runs steps of the present job by srun."""
    token = secrets.token_hex(32)

    def step(nodes: Sequence[str], task: Mapping[str, object]) -> dict[str, dict[str, object]]:
        command = [
            "srun", "--overlap", f"--nodes={len(nodes)}", f"--ntasks={len(nodes)}",
            "--ntasks-per-node=1", f"--nodelist={','.join(nodes)}", "--cpu-bind=none",
            "--mpi=none", "--kill-on-bad-exit=0", "--export=ALL", "--quiet", "--input=none",
            "--mem=0", *_RANK, json.dumps(task),
        ]  # fmt: skip
        try:
            done = subprocess.run(
                command,
                env={**environ, TOKEN: token},
                capture_output=True,
                text=True,
                timeout=_LIMIT + 4 * float(str(task["seconds"])),
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            out = late.stdout or b""
            return read_step(out.decode(errors="replace") if isinstance(out, bytes) else out)
        except OSError as error:
            raise Unavailable(f"srun: {error.strerror}", operation="measure nodes") from None
        answers = read_step(done.stdout)
        if not answers:
            raise Unavailable(
                f"the step printed no answer: {done.stderr.strip()[-300:]}",
                operation="measure nodes",
                would_work="run it inside a job of all these nodes, with podwright on each",
            )
        return answers

    return step


def read_step(text: str) -> dict[str, dict[str, object]]:
    """Read the answers of a step's tasks, by node."""
    answers: dict[str, dict[str, object]] = {}
    for line in text.splitlines():
        _, mark, body = line.partition(MARK)
        if mark:
            answer = json.loads(body)
            answers[str(answer["node"])] = answer
    return answers
