"""The agent's values and messages are held against each other, so that they cannot drift."""

from __future__ import annotations

import typing
from typing import Any

import msgspec
import pytest

from podwright.wire import Empty, Value, messages
from podwright.wire._generated import podwright_agent_v1_pb2 as pb
from podwright.wire.agent import (
    AGENT_METHODS,
    AGENT_SERVICE,
    Configured,
    ConfigureRequest,
    DescribeRequest,
    DevicesRequest,
    DeviceState,
    FenceRequest,
    MachineState,
)

VALUES: list[Value] = [
    DescribeRequest(),
    DeviceState(index=3, ip="::1", server_port=1, chip_id="c", healthy=True, attributes={"a": "b"}),
    Configured(index=1, partition="p", epoch=1 << 40),
    MachineState(
        name="ag1",
        family="ipu",
        devices=[DeviceState(index=0)],
        configured=[Configured(index=0, partition="p", epoch=1)],
        software="simulated",
        links={"up": "ag2"},
        fence=1 << 50,
        cuts_off="agent",
        uid=0,
    ),
    ConfigureRequest(partition="p", epoch=5, devices=[0, 1]),
    DevicesRequest(epoch=7, devices=[2]),
    FenceRequest(epoch=8, devices=[2], run="r1"),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_every_value_survives_its_encoding(value: Value) -> None:
    kind = type(value)
    descriptor = messages.message_type(kind).DESCRIPTOR
    assert descriptor.full_name == f"podwright.agent.v1.{kind.__name__}"
    fields = [field.name for field in msgspec.structs.fields(kind)]
    assert [field.name for field in descriptor.fields] == fields
    assert messages.decode(kind, messages.encode(value)) == value


def test_the_service_has_exactly_the_calls_of_the_table() -> None:
    service: Any = pb.DESCRIPTOR.services_by_name["Agent"]
    assert service.full_name == AGENT_SERVICE
    assert {c.name: (c.input_type.name, c.output_type.name) for c in service.methods} == {
        m.name: (m.request.__name__, m.reply.__name__) for m in AGENT_METHODS.values()
    }
    kinds = {typing.cast(type, type(value)).__name__ for value in VALUES}
    assert set(pb.DESCRIPTOR.message_types_by_name) == kinds
    assert Empty.__name__ not in kinds
