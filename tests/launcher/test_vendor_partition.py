"""A signal interrupts the creation of a partition at a controller without leases."""

from __future__ import annotations

import pytest

from podwright.client import Client, FakeTransport
from podwright.launcher.plan._vendor_partition import borrow_partition
from podwright.launcher.watchers._signals import Interrupted
from podwright.wire import AcquireRequest, Empty, PartitionList, PartitionSpec, Value


@pytest.mark.parametrize(
    ("name", "removed"),
    [("", True), ("p1", False)],  # another caller may have made a partition of a given name
)
def test_only_a_name_of_our_own_is_removed(name: str, removed: bool) -> None:
    def answer(method: str, request: Value) -> Value:
        if method == "ListPartitions":
            return PartitionList(partitions=[])
        if method == "CreatePartition":
            raise Interrupted(15)
        return Empty()

    transport = FakeTransport(answer)
    request = AcquireRequest(spec=PartitionSpec(name=name, size=4), create=True)
    with pytest.raises(Interrupted):
        borrow_partition(Client(transport), request)
    assert ("RemovePartition" in [method for method, _ in transport.calls]) == removed
