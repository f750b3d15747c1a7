"""Asks the server what there is to schedule: a pod's devices, and its largest block."""

from __future__ import annotations

from collections.abc import Sequence

from podwright.client import Client
from podwright.slurm.service import Line, Pod
from podwright.slurm.service._blocks import Blocks
from podwright.wire import InvalidRequest


def survey(client: Client, named: Sequence[str]) -> tuple[Pod, ...]:
    """The pods of a site. named: TYPE=CLUSTER or TYPE=CLUSTER/ALLOCATION; none: all clusters.

    The first one's licence is `ipu`, another's is named like its type. Raises InvalidRequest.
    """
    clusters = {cluster.name: cluster for cluster in client.list_clusters()}
    words = list(named) or list(clusters)
    pods: list[Pod] = []
    for word in words:
        kind, _, place = word.partition("=")
        cluster, _, allocation = (place or kind).partition("/")
        if cluster not in clusters:
            raise InvalidRequest(
                f"there is no cluster {cluster}",
                asked=f"--pod {word}",
                would_work=f"one of {', '.join(clusters)}",
            )
        if not kind.replace("_", "").isalnum():
            raise InvalidRequest(f"{kind!r} is no type", would_work="letters, digits and _")
        blocks = Blocks(Line(client.list_devices(cluster=cluster, allocation=allocation)).capacity)
        joined = clusters[cluster].topology != "none"
        domain = max(clusters[cluster].ild_sizes)
        pods.append(
            Pod(
                type=kind,
                cluster=cluster,
                allocation=allocation,
                devices=blocks.capacity.bit_count(),
                largest=1 << (blocks.orders - 1)
                if joined
                else min(1 << (blocks.orders - 1), 1 << (domain.bit_length() - 1)),
                domain=1 << (domain.bit_length() - 1),
                licence="ipu" if not pods else kind,
            )
        )
    return tuple(pods)
