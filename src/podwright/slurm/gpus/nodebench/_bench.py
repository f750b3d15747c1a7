"""The benchmark of a job's nodes: each by itself, then in rounds of pairs; each round is a step."""

from __future__ import annotations

import json
import secrets
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from podwright.errors import Unavailable
from podwright.slurm.gpus.nodebench._expected import expected as expected_of
from podwright.slurm.gpus.nodebench._rank import MARK, TOKEN
from podwright.slurm.gpus.nodebench._rounds import (
    SHARE,
    BenchVerdict,
    Pair,
    Round,
    judge,
    next_round,
)

_RANK = (sys.executable, "-P", "-m", "podwright.slurm.gpus.nodebench._rank")
_LIMIT = 120.0  # seconds of a step, beside what it measures

#: Runs a step on nodes: what its tasks said, by node.
Step = Callable[[Sequence[str], Mapping[str, object]], dict[str, dict[str, object]]]


class Slow(NamedTuple):
    """part: a node, or two of them for the way in between. what: was measured. rate, reference:
    Gb/s, what it did and what others do, or the hardware should."""

    part: str
    what: str
    rate: float
    reference: float


class Bench(NamedTuple):
    """within: rates inside nodes by node and kind. rounds: rates of pairs; of those that met by
    several GPUs, the slowest one's. slow: who is. errors: by node."""

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
    way: str = "tcp",
    seconds: float = 2.0,
    expected: float = 0.0,
    port: int = 0,
    say: Callable[[str], None] = lambda text: None,
) -> Bench:
    """Measure nodes. way: between them; empty: each by itself alone. expected: Gb/s of a pair by
    the hardware; 0: what most of them do. say: is told how far it is. Raises Unavailable."""
    errors: dict[str, str] = {}
    port = port or 20000 + secrets.randbelow(19000)
    say(f"{len(nodes)} nodes by themselves")
    task: dict[str, object] = {"pairs": [], "way": way, "port": port, "seconds": seconds}
    said = step(nodes, task)
    within = {node: _rates(said.get(node, {}), errors, node) for node in nodes}
    rails = _rails(said, nodes) if way == "torch" else 1
    sheets = {node: _sheet(said.get(node, {})) for node in nodes}
    again = sorted({slow.part for slow in _slow_within(within, sheets)})
    if again:  # once more, with less around them: noise goes, a slow node stays slow
        say(f"{len(again)} of them again")
        said = step(again, task)
        for node in again:
            better = _rates(said.get(node, {}), errors, node)
            for kind, rate in within[node].items():
                within[node][kind] = max(rate, better.get(kind, 0.0))
    rounds: list[Round] = []
    behind: dict[Pair, int] = {}
    while pairs := next_round(nodes, rounds, expected) if way else ():
        say(f"round {len(rounds) + 1}: {len(pairs)} pairs")
        busy = sorted(node for pair in pairs for node in pair)
        said = step(busy, {**task, "pairs": pairs, "rails": rails, "port": port + 1 + len(rounds)})
        rounds.append({pair: _pair(pair, said, errors) for pair in pairs})
        behind |= {pair: gpu for pair in pairs if (gpu := _behind(pair, said)) is not None}
    verdict = judge(nodes, rounds, expected)
    slow = [*_slow_pairs(verdict, rounds, behind), *_slow_within(within, sheets)]
    return Bench(tuple(nodes), way, within, tuple(rounds), verdict, tuple(slow), errors)


def _rates(said: Mapping[str, object], errors: dict[str, str], node: str) -> dict[str, float]:
    found = said.get("within")
    if isinstance(found, dict):
        return {str(kind): float(rate) for kind, rate in found.items()}
    errors[node] = str(said.get("error", "said nothing"))
    return {}


def _pair(pair: Pair, said: Mapping[str, Mapping[str, object]], errors: dict[str, str]) -> float:
    rates = []
    for node in pair:
        answer = said.get(node, {})
        rate = answer.get("rate")
        if isinstance(rate, float | int):
            rates.append(float(rate))
        else:
            errors[node] = str(answer.get("error", "said nothing"))
    return min(rates) if len(rates) == 2 else 0.0


def _rails(said: Mapping[str, Mapping[str, object]], nodes: Sequence[str]) -> int:
    """By how many GPUs nodes meet: as many as each has, at least one."""
    names = [said.get(node, {}).get("gpus") for node in nodes]
    return max(min(len(one) if isinstance(one, list) else 0 for one in names), 1)


def _behind(pair: Pair, said: Mapping[str, Mapping[str, object]]) -> int | None:
    """The GPU by which two nodes met more slowly than by their others; None: all are alike."""
    rates = said.get(pair[0], {}).get("rails")
    if not isinstance(rates, list) or min(rates) >= SHARE * statistics.median(rates):
        return None
    return rates.index(min(rates))


def _slow_pairs(
    verdict: BenchVerdict, rounds: Sequence[Round], behind: Mapping[Pair, int]
) -> list[Slow]:
    out = []
    for node in verdict.nodes:
        rates = [rate for one in rounds for pair, rate in one.items() if node in pair]
        by = {behind[pair] for one in rounds for pair in one if node in pair and pair in behind}
        what = f"to other nodes{_by(by)}"
        out.append(Slow(node, what, statistics.median(rates), verdict.reference))
    for way in verdict.ways:
        rates = [one[way] for one in rounds if way in one]
        what = f"this way alone{_by({behind[way]} if way in behind else set())}"
        out.append(Slow(" to ".join(way), what, max(rates), verdict.reference))
    return out


def _by(gpus: set[int]) -> str:
    return f", by GPU {', '.join(map(str, sorted(gpus)))}" if gpus else ""


def _sheet(said: Mapping[str, object]) -> dict[str, float]:
    """What a node's GPUs should do; empty where they differ, or are not known."""
    names = said.get("gpus")
    if not isinstance(names, list) or len({*map(str, names)}) != 1:
        return {}
    return expected_of(str(names[0]), len(names))


def _slow_within(
    within: Mapping[str, Mapping[str, float]], sheets: Mapping[str, Mapping[str, float]]
) -> list[Slow]:
    """Nodes below what their GPUs should do, or the median of three or more nodes does."""
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
    """Steps of the job that we are in, by srun."""
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
            raise Unavailable(f"srun: {error.strerror}", asked="measure nodes") from None
        found = read_step(done.stdout)
        if not found:
            raise Unavailable(
                f"the step said nothing: {done.stderr.strip()[-300:]}",
                asked="measure nodes",
                would_work="run it inside a job of all these nodes, with podwright on each",
            )
        return found

    return step


def read_step(text: str) -> dict[str, dict[str, object]]:
    """What the tasks of a step said, by node."""
    found: dict[str, dict[str, object]] = {}
    for line in text.splitlines():
        _, mark, body = line.partition(MARK)
        if mark:
            said = json.loads(body)
            found[str(said["node"])] = said
    return found
