"""The recorded clusters and requests, as a twin takes them, and its answers as the records' words.

`seen/<release>/<seed>.txt` has a cluster (the first line, as scontrol and its files showed it) and
what real Slurm did with each request there.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from podwright.gpu.requests import Texts
from podwright.slurm.twin import Granted, GrantedNode, Refused, SiteFiles, Submission, Waits

SEEN = Path(__file__).parent / "seen"


class RecordedRequest(NamedTuple):
    """Options of sbatch, and what became of the job: `submit`, `waits`, or its nodes."""

    options: str
    outcome: str

    @property
    def submission(self) -> Submission:
        return Submission("sbatch", tuple(shlex.split(self.options)))


def clusters(release: str) -> list[Path]:
    """The files of a release."""
    return sorted((SEEN / release).glob("*.txt"))


def read_cluster(path: Path) -> tuple[SiteFiles, list[RecordedRequest]]:
    """A recorded cluster and its requests of sbatch."""
    first, *rest = path.read_text().splitlines()
    shown = json.loads(first)
    site = SiteFiles(
        config=shown["config"],
        nodes=shown["nodes"],
        partitions=shown["partitions"],
        gres_conf=shown["gres.conf"],
        topology_conf=shown["topology.conf"],
    )
    return site, list(_requests(rest))


def read_texts(release: str, seed: str) -> Texts:
    """A recorded cluster as its Slurm would show it today: with the fields that early recordings
    left out, as their clusters had them."""
    shown = json.loads((SEEN / release / f"{seed}.txt").read_text().splitlines()[0])
    return Texts(
        config=_whole_config(shown["config"]),
        nodes=shown["nodes"],
        partitions="\n".join(map(_whole_partition, shown["partitions"].splitlines())),
        gres_conf=shown["gres.conf"],
        topology_conf=shown["topology.conf"],
    )


def _whole_config(text: str) -> str:
    for setting, value in (
        ("GresTypes", "gpu,shard"),
        ("DefMemPer", "UNLIMITED"),
        ("MaxMemPer", "UNLIMITED"),
    ):
        name = setting if setting.endswith("s") else f"{setting}Node"
        if not re.search(rf"^{setting}", text, re.M):
            text = f"{text.rstrip()}\n{name} = {value}\n"
    return text


def _whole_partition(row: str) -> str:
    row = re.sub(r"^(PartitionName=\S+) (?!AllowGroups)", r"\1 AllowGroups=ALL ", row)
    for field, value in (
        ("Exclusive", "ExclusiveUser=NO"),
        ("DefMemPer", "DefMemPerNode=UNLIMITED"),
        ("MaxMemPer", "MaxMemPerNode=UNLIMITED"),
    ):
        row = row if f" {field}" in row else f"{row} {value}"
    return row


def _requests(lines: list[str]) -> Iterator[RecordedRequest]:
    for line in lines:
        options, _, outcome = line.partition(" | ")
        # A step that fails or hangs is recorded without what its job has.
        if not options.startswith("srun ") and outcome not in ("step", "hangs"):
            nodes, tasks, _ = outcome.rpartition("; ")
            yield RecordedRequest(options, nodes if tasks else outcome)


def outcome_of(answer: Granted | Waits | Refused) -> str:
    """An answer in the words of the records."""
    if isinstance(answer, Refused):
        return "submit"
    if isinstance(answer, Waits):
        return "waits"
    return "; ".join(_node(node) for node in answer.nodes)


def _node(node: GrantedNode) -> str:
    shares = ",".join(f"{gpu}:{count}" for gpu, count in sorted(node.shares.items()))
    return (
        f"{node.name} gpus={','.join(map(str, node.gpus))} shares={shares} "
        f"cpus={','.join(map(str, node.cpus))} mem={node.memory}"
    )
