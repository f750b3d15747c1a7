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
from podwright.gpu.nodebench._find_slow_nodes import (
    SLOW_RATE_SHARE,
    BenchVerdict,
    Pair,
    Round,
    judge,
    next_round,
)
from podwright.gpu.nodebench._rank import ANSWER_LINE_PREFIX, TOKEN

_RANK_COMMAND = (sys.executable, "-P", "-m", "podwright.gpu.nodebench._rank")
_STEP_TIMEOUT_S = 120.0  # seconds of a step, beyond its measurement

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
    run_step: Step,
    *,
    transport: str = "tcp",
    duration_s: float = 2.0,
    expected_rate: float = 0.0,
    first_port: int = 0,
    report_progress: Callable[[str], None] = lambda text: None,
) -> Bench:
    """Measure nodes. Raises Unavailable.

    transport: how pairs of nodes exchange data; empty measures each node by itself alone.
    expected_rate: Gb/s that a pair should reach; 0 takes what most pairs reach. report_progress: is
    called with a line of progress.
    """
    errors: dict[str, str] = {}
    first_port = first_port or 20000 + secrets.randbelow(19000)
    report_progress(f"{len(nodes)} nodes by themselves")
    task: dict[str, object] = {
        "pairs": [],
        "way": transport,
        "port": first_port,
        "seconds": duration_s,
    }
    answers_by_node = run_step(nodes, task)
    rates_within = {
        node: _node_rates(answers_by_node.get(node, {}), errors, node) for node in nodes
    }
    rail_count = _rail_count(answers_by_node, nodes) if transport == "torch" else 1
    sheet_rates = {node: _sheet_rates(answers_by_node.get(node, {})) for node in nodes}
    suspect_nodes = sorted({slow.part for slow in _slow_within(rates_within, sheet_rates)})
    # Measured once more with fewer nodes: noise disappears, a slow node stays slow.
    if suspect_nodes:
        report_progress(f"{len(suspect_nodes)} of them again")
        answers_by_node = run_step(suspect_nodes, task)
        for node in suspect_nodes:
            repeated_rates = _node_rates(answers_by_node.get(node, {}), errors, node)
            for measurement, rate in rates_within[node].items():
                rates_within[node][measurement] = max(rate, repeated_rates.get(measurement, 0.0))
    rounds: list[Round] = []
    slow_rails: dict[Pair, int] = {}
    while pairs := next_round(nodes, rounds, expected_rate) if transport else ():
        report_progress(f"round {len(rounds) + 1}: {len(pairs)} pairs")
        paired_nodes = sorted(node for pair in pairs for node in pair)
        answers_by_node = run_step(
            paired_nodes,
            {**task, "pairs": pairs, "rails": rail_count, "port": first_port + 1 + len(rounds)},
        )
        rounds.append({pair: _pair_rate(pair, answers_by_node, errors) for pair in pairs})
        slow_rails |= {
            pair: gpu
            for pair in pairs
            if (gpu := _slow_gpu_index(pair, answers_by_node)) is not None
        }
    verdict = judge(nodes, rounds, expected_rate)
    slow = [*_slow_pairs(verdict, rounds, slow_rails), *_slow_within(rates_within, sheet_rates)]
    return Bench(tuple(nodes), transport, rates_within, tuple(rounds), verdict, tuple(slow), errors)


def _node_rates(
    node_answer: Mapping[str, object], errors: dict[str, str], node_name: str
) -> dict[str, float]:
    rates = node_answer.get("within")
    if isinstance(rates, dict):
        return {str(measurement): float(rate) for measurement, rate in rates.items()}
    errors[node_name] = str(node_answer.get("error", "gave no reason"))
    return {}


def _pair_rate(
    pair: Pair, answers_by_node: Mapping[str, Mapping[str, object]], errors: dict[str, str]
) -> float:
    rates = []
    for node in pair:
        node_answer = answers_by_node.get(node, {})
        rate = node_answer.get("rate")
        if isinstance(rate, float | int):
            rates.append(float(rate))
        else:
            errors[node] = str(node_answer.get("error", "gave no reason"))
    return min(rates) if len(rates) == 2 else 0.0


def _rail_count(answers_by_node: Mapping[str, Mapping[str, object]], nodes: Sequence[str]) -> int:
    """Return by how many GPUs two nodes are measured: as many as each has, at least one."""
    gpu_lists = [answers_by_node.get(node, {}).get("gpus") for node in nodes]
    return max(min(len(gpus) if isinstance(gpus, list) else 0 for gpus in gpu_lists), 1)


def _slow_gpu_index(pair: Pair, answers_by_node: Mapping[str, Mapping[str, object]]) -> int | None:
    """Return the GPU by which two nodes were slower than by their others; None: all are alike."""
    rail_rates = answers_by_node.get(pair[0], {}).get("rails")
    if not isinstance(rail_rates, list) or min(rail_rates) >= SLOW_RATE_SHARE * statistics.median(
        rail_rates
    ):
        return None
    return rail_rates.index(min(rail_rates))


def _slow_pairs(
    verdict: BenchVerdict, rounds: Sequence[Round], slow_rails: Mapping[Pair, int]
) -> list[Slow]:
    findings = []
    for node in verdict.nodes:
        rates = [
            rate for round_rates in rounds for pair, rate in round_rates.items() if node in pair
        ]
        slow_gpus = {
            slow_rails[pair]
            for round_rates in rounds
            for pair in round_rates
            if node in pair and pair in slow_rails
        }
        where_slow = f"to other nodes{_gpu_suffix(slow_gpus)}"
        findings.append(Slow(node, where_slow, statistics.median(rates), verdict.reference))
    for direction in verdict.ways:
        rates = [round_rates[direction] for round_rates in rounds if direction in round_rates]
        where_slow = (
            "in this direction "
            f"only{_gpu_suffix({slow_rails[direction]} if direction in slow_rails else set())}"
        )
        findings.append(Slow(" to ".join(direction), where_slow, max(rates), verdict.reference))
    return findings


def _gpu_suffix(gpu_indices: set[int]) -> str:
    return f", by GPU {', '.join(map(str, sorted(gpu_indices)))}" if gpu_indices else ""


def _sheet_rates(node_answer: Mapping[str, object]) -> dict[str, float]:
    """Return what a node's GPUs should reach; empty if they differ, or are not known."""
    gpu_names = node_answer.get("gpus")
    if not isinstance(gpu_names, list) or len({*map(str, gpu_names)}) != 1:
        return {}
    return expected_of(str(gpu_names[0]), len(gpu_names))


def _slow_within(
    rates_by_node: Mapping[str, Mapping[str, float]], sheet_rates: Mapping[str, Mapping[str, float]]
) -> list[Slow]:
    """Return nodes below what their GPUs should reach, or below the median of three or more
    nodes.
    """
    findings = []
    for measurement in dict.fromkeys(
        measurement for rates in rates_by_node.values() for measurement in rates
    ):
        measured_rates = {
            node: rates[measurement]
            for node, rates in rates_by_node.items()
            if measurement in rates
        }
        median_rate = statistics.median(measured_rates.values()) if len(measured_rates) > 2 else 0.0
        for node, rate in measured_rates.items():
            reference_rate = max(median_rate, sheet_rates[node].get(measurement, 0.0))
            if rate < SLOW_RATE_SHARE * reference_rate:
                findings.append(Slow(node, measurement, rate, reference_rate))
    return findings


def srun_step(environ: Mapping[str, str]) -> Step:
    """A function that runs steps of the present job by srun."""
    bench_token = secrets.token_hex(32)

    def step(nodes: Sequence[str], task: Mapping[str, object]) -> dict[str, dict[str, object]]:
        command = [
            "srun", "--overlap", f"--nodes={len(nodes)}", f"--ntasks={len(nodes)}",
            "--ntasks-per-node=1", f"--nodelist={','.join(nodes)}", "--cpu-bind=none",
            "--mpi=none", "--kill-on-bad-exit=0", "--export=ALL", "--quiet", "--input=none",
            "--mem=0", *_RANK_COMMAND, json.dumps(task),
        ]  # fmt: skip
        try:
            srun_result = subprocess.run(
                command,
                env={**environ, TOKEN: bench_token},
                capture_output=True,
                text=True,
                timeout=_STEP_TIMEOUT_S + 4 * float(str(task["seconds"])),
                check=False,
            )
        except subprocess.TimeoutExpired as timeout_error:
            partial_output = timeout_error.stdout or b""
            return read_step(
                partial_output.decode(errors="replace")
                if isinstance(partial_output, bytes)
                else partial_output
            )
        except OSError as error:
            raise Unavailable(f"srun: {error.strerror}", operation="measure nodes") from None
        answers_by_node = read_step(srun_result.stdout)
        if not answers_by_node:
            raise Unavailable(
                f"the step printed no answer: {srun_result.stderr.strip()[-300:]}",
                operation="measure nodes",
                would_work="run it inside a job of all these nodes, with podwright on each",
            )
        return answers_by_node

    return step


def read_step(step_output: str) -> dict[str, dict[str, object]]:
    """Read the answers of a step's tasks, by node."""
    answers_by_node: dict[str, dict[str, object]] = {}
    for line in step_output.splitlines():
        _, found_mark, answer_json = line.partition(ANSWER_LINE_PREFIX)
        if found_mark:
            answer = json.loads(answer_json)
            answers_by_node[str(answer["node"])] = answer
    return answers_by_node
