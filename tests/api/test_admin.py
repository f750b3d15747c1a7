"""What administrators do, from Python, against a real server on a simulated pod."""

from __future__ import annotations

import asyncio

import pytest

import podwright
from podwright.errors import AlreadyExists, InvalidRequest, NotFound, WrongState
from tests.whole.conftest import Pod as Server


def test_users_and_their_quotas_are_made_listed_and_removed(server: Server) -> None:
    with podwright.connect() as pod:
        made = pod.admin.create_user("alice", role="reader")
        assert (made.user.name, made.user.role) == ("alice", "reader")
        assert made.access_key
        with pytest.raises(AlreadyExists):
            pod.admin.create_user("alice")
        assert pod.admin.user("alice") in pod.admin.users()
        pod.admin.set_quota(user="alice", devices=0)
        (quota,) = pod.quotas()
        assert (quota.user, quota.devices, quota.partitions) == ("alice", 0, -1)
        pod.admin.remove_quota(user="alice")
        assert pod.quotas() == []
        with pytest.raises(NotFound, match="no quota of alice"):
            pod.admin.remove_quota(user="alice")
        pod.admin.remove_user("alice")
        with pytest.raises(NotFound, match="there is no user alice") as refused:
            pod.admin.user("alice")
        assert "there are: " in refused.value.would_work


def test_weights_of_the_common_queue_are_set_and_forgotten(server: Server) -> None:
    with podwright.connect() as pod:
        assert [(share.guest, share.weight) for share in pod.admin.shares()] == [("people", 1.0)]
        assert pod.admin.set_share("slurm", 3).source == "STORED"
        with pytest.raises(InvalidRequest, match="0 is not a weight"):
            pod.admin.set_share("slurm", 0)
        assert [share.guest for share in pod.admin.shares()] == ["people", "slurm"]
        assert pod.admin.remove_share("slurm").weight == 1
        with pytest.raises(NotFound, match="nobody has set the weight of slurm"):
            pod.admin.remove_share("slurm")


def test_machines_allocations_and_clusters_are_made_changed_and_removed(server: Server) -> None:
    with podwright.connect() as pod:
        first = pod.admin.machines()[0]
        assert first.free == first.devices > 0
        pod.admin.drain_machine(first.machine, reason="fan 3 is loud")
        drained = pod.admin.machine(first.machine)
        assert (drained.state, drained.reason) == ("DRAINED", "fan 3 is loud")
        pod.admin.resume_machine(first.machine)
        assert pod.admin.machine(first.machine) == first
        with pytest.raises(NotFound, match="there is no machine nobody"):
            pod.admin.replace_machine("nobody", "n9")
        test = pod.admin.test_cluster(first.cluster)
        assert {one.machine for one in test.results} >= {first.machine}
        mine = pod.admin.create_allocation("mine", agents=[first.machine])
        assert mine.agents == [first.machine]
        with pytest.raises(WrongState):
            pod.admin.remove_cluster(first.cluster)
        pod.admin.remove_allocation("mine")
        assert "mine" not in [one.name for one in pod.allocations()]


def test_moves_and_backups_work_beside_an_event_loop_too(server: Server) -> None:
    with podwright.connect() as pod:
        assert pod.admin.moves().allowed
        assert not pod.admin.allow_moves(False).allowed
        assert not asyncio.run(asyncio.to_thread(pod.admin.moves)).allowed
        assert pod.admin.allow_moves(True).allowed
        pod.admin.create_user("carol")
        assert "carol" in pod.admin.backup()
        pod.admin.remove_user("carol")
