"""What Slurm and the nodes themselves say about the nodes of a job.

A user may ask all of it: Slurm lists its nodes to everybody, with the reasons that root's health
check wrote, and the vendor's library tells what the driver asks for.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence

import msgspec

from podwright.gpu.health import LIST_NODES_COMMAND, NodeRow, read_rows
from podwright.gpu.retry._retry_decisions import NodeWord
from podwright.ground.judgement import Says

_PROBE_SECONDS = 60
_USABLE = ("idle", "mixed", "allocated", "completing")


class _Said(msgspec.Struct):
    says: Says
    because: str
    source: str


class _Report(msgspec.Struct):
    judgement: _Said


class Nodes(msgspec.Struct, frozen=True):
    """words: about the job's nodes. usable_others: how many more the job could get."""

    words: tuple[NodeWord, ...]
    usable_others: int


def ask_nodes(
    nodes: Sequence[str],
    excluded: Sequence[str],
    environ: Mapping[str, str],
    run: Callable[[Sequence[str], float], str | None],
) -> Nodes:
    """Ask Slurm, and then the nodes that answer. excluded: nodes that the job does not get.

    run: a command and its limit in seconds; its output, whatever its exit code, or None where it
    did not end.
    """
    listing = run(LIST_NODES_COMMAND, _PROBE_SECONDS)
    rows = read_rows(listing) if listing else []
    ill = [word for node in nodes if (word := slurms_word(node, rows))]
    silent = {word.node for word in ill}
    asked = [node for node in nodes if node not in silent]
    answers = {}
    if asked:
        answers = read_answers(run(probe_command(asked), _PROBE_SECONDS) or "")
    no_answer = ("did not answer", "")
    words = [*ill, *(NodeWord(n, *answers.get(n, (Says.NOT_KNOWN, *no_answer))) for n in asked)]
    partition = environ.get("SLURM_JOB_PARTITION", "")
    others = {
        row.node
        for row in rows
        if row.partition == partition
        and row.node not in {*nodes, *excluded}
        and row.state in _USABLE
    }
    return Nodes(tuple(words), len(others))


def slurms_word(node: str, rows: Sequence[NodeRow]) -> NodeWord | None:
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


def probe_command(nodes: Sequence[str]) -> list[str]:
    """The srun that asks each node for its health, one task on each."""
    own = shlex.join([sys.executable, "-m", "podwright.cli.podwright", "node", "health", "--json"])
    count = str(len(nodes))
    return [
        *("srun", "--overlap", "--quiet", "--export=ALL", "--input=none", "--kill-on-bad-exit=0"),
        *("--nodes", count, "--ntasks", count, "--ntasks-per-node=1", "--cpus-per-task=1"),
        *("--nodelist", ",".join(nodes)),
        # One write for each node, so that lines do not mix.
        *("sh", "-c", f'said=$({own} 2>/dev/null); echo "$SLURMD_NODENAME $said"'),
    ]


def read_answers(output: str) -> dict[str, tuple[Says, str, str]]:
    """What each node said of itself, by its name. A line that cannot be read is left out."""
    answers = {}
    for line in output.splitlines():
        node, _, tree = line.partition(" ")
        try:
            said = msgspec.json.decode(tree, type=_Report).judgement
        except msgspec.DecodeError:
            continue
        answers[node] = (said.says, said.because, said.source)
    return answers
