"""What Slurm and the nodes themselves say about the nodes of a job.

A user may ask all of it: Slurm lists its nodes to everybody, with the reasons that root's health
check wrote, and the vendor's library tells what the driver asks for.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from podwright.gpu.health import LIST_NODES_COMMAND, NodeRow, read_rows
from podwright.gpu.retry._failure_records import (
    ERROR_FILE_VARIABLE,
    OWN_ERROR_FILE,
    FailureRecord,
    read_error_file,
)
from podwright.gpu.retry._retry_decisions import NodeWord
from podwright.ground.judgement import Says

_PROBE_SECONDS = 60
#: Seconds before each look, while a node does not answer. slurmctld notices that within
#: SlurmdTimeout (300 s). Until then a node is not blamed: this node's network may be at fault.
_PAUSES_SECONDS = (0, 30, 30, 60, 60, 60, 60)
_USABLE = ("idle", "mixed", "allocated", "completing")
_UNREADABLE = (Says.NOT_KNOWN, "its health cannot be read", "")


class _Said(msgspec.Struct):
    says: Says
    because: str
    source: str


class _Report(msgspec.Struct):
    judgement: _Said


class NodesSeen(NamedTuple):
    """words: about the job's nodes. failures: what programs recorded there. usable_others: how many
    more nodes the job could get.
    """

    words: list[NodeWord]
    failures: list[FailureRecord]
    usable_others: int


def ask_nodes(
    nodes: Sequence[str],
    excluded: Sequence[str],
    environ: Mapping[str, str],
    run: Callable[[Sequence[str], float], str],
    sleep: Callable[[float], None],
) -> NodesSeen:
    """Ask Slurm, and then the nodes that answer. excluded: nodes that the job does not get.

    run: a command and its limit in seconds; its output until then, whatever its exit code.
    """
    words: dict[str, NodeWord] = {}
    failures: list[FailureRecord] = []
    for pause in _PAUSES_SECONDS:
        sleep(pause)
        rows = read_rows(run(LIST_NODES_COMMAND, _PROBE_SECONDS))
        words |= {node: word for node in nodes if (word := slurms_word(node, rows))}
        if asked := [node for node in nodes if node not in words]:
            command = probe_command(asked, environ.get(ERROR_FILE_VARIABLE, ""))
            said, records = read_answers(run(command, _PROBE_SECONDS))
            words |= {word.node: word for word in said}
            failures += records
        # If not even this node answers, srun itself does not work.
        if len(words) == len(nodes) or environ.get("SLURMD_NODENAME") not in words:
            break
    silent = (Says.NOT_KNOWN, "it does not answer", "")
    partition = environ.get("SLURM_JOB_PARTITION", "")
    others = {
        row.node
        for row in rows
        if row.partition == partition
        and row.node not in {*nodes, *excluded}
        and row.state in _USABLE
    }
    return NodesSeen([words.get(n) or NodeWord(n, *silent) for n in nodes], failures, len(others))


def slurms_word(node: str, rows: Iterable[NodeRow]) -> NodeWord | None:
    """What Slurm says against a node; None for nothing."""
    for row in rows:
        if row.node != node:
            continue
        if row.state.endswith("*") or row.state.startswith("down"):
            because = f"Slurm has it as {row.state} ({row.reason})"
            return NodeWord(node, Says.NO, because, "Slurm")
        if row.ours and not row.held:
            return NodeWord(node, Says.NO, row.reason, "podwright node health, as root")
    return None


def probe_command(nodes: Sequence[str], error_file: str) -> list[str]:
    """The srun that asks each node for its health and for its error file, one task on each."""
    own = shlex.join([sys.executable, "-m", "podwright.cli.podwright", "node", "health", "--json"])
    file, count = shlex.quote(error_file), str(len(nodes))
    script = (
        f"said=$({own} 2>/dev/null); [ ! -O {file} ] || error=$(head -c 65536 {file} | tr -d '\\n')"
        '; printf \'%s\\t%s\\t%s\\n\' "$SLURMD_NODENAME" "$said" "$error"'
    )
    if error_file.startswith(OWN_ERROR_FILE):
        script += f"; rm -f {file}"
    return [
        *("srun", "--overlap", "--quiet", "--label", "--time=1", "--export=ALL", "--input=none"),
        *("--kill-on-bad-exit=0", "--ntasks-per-node=1", "--cpus-per-task=1"),
        *("--nodes", count, "--ntasks", count, "--nodelist", ",".join(nodes), "sh", "-c", script),
    ]


def read_answers(output: str) -> tuple[list[NodeWord], list[FailureRecord]]:
    """What each node said of itself, and what programs recorded there.

    srun cuts lines of more than 1,024 bytes, and mixes the pieces of several nodes. Each has the
    number of its task.
    """
    lines: dict[str, str] = {}
    for piece in output.split("\n"):
        task, colon, text = piece.lstrip().partition(": ")
        if colon and task.isdigit():
            lines[task] = lines.get(task, "") + text
    words, failures = [], []
    for line in lines.values():
        node, _, rest = line.partition("\t")
        report, _, error = rest.partition("\t")
        try:
            judgement = msgspec.json.decode(report, type=_Report).judgement
            words.append(NodeWord(node, judgement.says, judgement.because, judgement.source))
        except msgspec.DecodeError:
            words.append(NodeWord(node, *_UNREADABLE))
        if record := read_error_file(node, error):
            failures.append(record)
    return words, failures
