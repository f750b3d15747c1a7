"""The reader: what three releases print, states of nodes, and texts that users choose."""

from __future__ import annotations

import pytest

from podwright.errors import FieldNotKnown
from podwright.slurm.reader import (
    SlurmConfig,
    node_state,
    read_jobs,
    read_licences,
    read_nodes,
    read_partitions,
    read_reservations,
    read_switches,
    release_note,
)
from tests.slurm.reader import texts


@pytest.mark.parametrize("release", texts.RELEASES)
def test_each_release_is_read(release: str) -> None:
    nodes = read_nodes(texts.recorded(release, "nodes"))
    assert [node.name for node in nodes] == ["n1", "n2", "n3", "n4"]
    first = nodes[0]
    assert (first.sockets, first.cores_per_socket, first.threads_per_core) == (2, 4, 1)
    assert (first.cpus, first.allocated_cpus, first.memory_mib) == (8, 1, 100_000)
    assert [(one.type, one.amount, one.sockets) for one in first.gpus] == [("a100", 4, "0-1")]
    assert (first.reason, first.reserved_cpus, first.reserved_memory_mib) == ("", "", 0)
    assert first.partitions == ("main",)
    (main,) = read_partitions(texts.recorded(release, "partitions"))
    assert (main.default, main.state, main.share, main.whole_nodes) == (True, "UP", 1, False)
    assert (main.max_nodes, main.max_cpus_per_socket, main.memory) == (None, None, (0, False))
    running, waiting = read_jobs(texts.recorded(release, "jobs"))
    assert (running.state, running.gpus, running.user) == ("RUNNING", {"n1": [0]}, ("root", 0))
    assert (waiting.state, waiting.reason, waiting.gpus) == ("PENDING", "BeginTime", {})
    (reservation,) = read_reservations(texts.recorded(release, "reservations"))
    assert (reservation.name, reservation.licences) == ("r1", "")
    config = SlurmConfig(texts.recorded(release, "config"))
    assert ".".join(f"{part:02}" for part in config.version) == release[:5]
    assert (config.user_id, config.topology, config.hides) == (0, "flat", frozenset())


@pytest.mark.parametrize(
    ("text", "takes_jobs", "ill"),
    [
        ("IDLE", True, False),
        ("IDLE+CLOUD+POWERED_DOWN", True, False),  # Slurm powers it up for a job
        ("idle~", True, False),
        ("ALLOCATED+PLANNED", True, False),
        ("MIXED+CLOUD+POWERING_UP", True, False),
        ("IDLE+CLOUD+POWERING_DOWN", False, False),
        ("IDLE+MAINT", False, False),
        ("DOWN+CLOUD+POWERED_DOWN", False, True),
        ("DOWN*", False, True),
        ("IDLE*", False, True),
        ("IDLE+DRAIN", False, True),
        ("MIXED+DRAIN+INVALID_REG", False, True),
    ],
)
def test_a_state_is_its_words_and_no_part_of_a_word(text: str, takes_jobs: bool, ill: bool) -> None:
    state = node_state(text)
    assert (state.takes_jobs, state.ill) == (takes_jobs, ill)


def test_a_missing_field_is_not_known_and_has_its_name() -> None:
    (node,) = read_nodes(texts.node().replace("RealMemory=", "Memory="))
    with pytest.raises(FieldNotKnown, match=r"not known: RealMemory \(node n1\)") as failed:
        _ = node.memory_mib
    assert failed.value.data == {"field": "RealMemory", "record": "node n1"}
    assert node.cpus == 8


def test_a_field_that_is_left_out_where_unset_is_not_known_beside_a_strange_name() -> None:
    (node,) = read_nodes(texts.node(ReservedCPUs="0-1"))
    with pytest.raises(FieldNotKnown, match=r"not known: CPUSpecList .*ReservedCPUs"):
        _ = node.reserved_cpus


def test_records_that_begin_with_another_field_are_no_empty_list() -> None:
    text = texts.recorded("26.05.5", "nodes").replace("NodeName=", "Node=")
    with pytest.raises(FieldNotKnown, match="not known: NodeName"):
        read_nodes(text)
    assert read_jobs("No jobs in the system\n") == []


@pytest.mark.parametrize("field", ["JobName", "Comment"])
@pytest.mark.parametrize(
    ("forged", "lost"),
    [
        ("x UserId=bob(1002)", "UserId"),
        ("x CoreSpec=* Nodes=n2 CPU_IDs=0 Mem=0 GRES=gpu:4(IDX:0-3) MinCPUsNode=1", "CoreSpec"),
    ],
)
def test_no_user_forges_a_field_by_a_name_or_a_comment(field: str, forged: str, lost: str) -> None:
    (job,) = read_jobs(texts.job("RUNNING", **{field: forged}))
    with pytest.raises(FieldNotKnown, match=f"not known: {lost} .*twice"):
        _ = (job.user, job.gpus)


def test_a_grant_that_a_comment_imitates_is_not_taken() -> None:
    (job,) = read_jobs(texts.job("RUNNING", Comment="Nodes=n2 CPU_IDs=0 Mem=0 GRES=gpu:4(IDX:0-3)"))
    assert job.gpus == {"n1": [0]}


def test_licences_and_switches() -> None:
    (licence,) = read_licences("LicenseName=a Total=8 Used=3 Free=5 Reserved=0 Remote=no\n")
    assert (licence.name, licence.total, licence.used) == ("a", 8, 3)
    leaf, top = read_switches(
        "SwitchName=l1 Level=0 LinkSpeed=1 Nodes=n[1-2]\n"
        "SwitchName=top Level=1 LinkSpeed=1 Nodes=n[1-2] Switches=l1\n"
    )
    assert (leaf.leaf, leaf.nodes, top.leaf) == (True, ("n1", "n2"), False)
    (block,) = read_switches("BlockName=b1 BlockIndex=0 Nodes=n[1-4] BlockSize=4\n")
    assert (block.leaf, block.size) == (True, 4)
    for text in ("Switch=l1 Level=0 Nodes=n1\n", "SwitchName=l1 Level=0 Hosts=n1\n"):
        with pytest.raises(FieldNotKnown):
            read_switches(text)


def test_a_newer_slurm_than_the_proven_ones_is_named() -> None:
    assert release_note((26, 5)) == ""
    assert "26.11" in release_note((26, 11))
