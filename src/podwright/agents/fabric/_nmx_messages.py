"""The values that NMX-M sends: names and shapes of NVIDIA's OpenAPI document (opennmxm.yaml,
85.1).
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import msgspec


class NmxPlace(msgspec.Struct, frozen=True):
    """A GPU by its location, which is one way to write a partition's members."""

    DomainUUID: str
    ChassisID: int
    SlotID: int
    HostID: int
    DeviceID: int


class NmxLocation(msgspec.Struct, frozen=True):
    """The location of a GPU. Each part may be missing."""

    ChassisID: int | None = None
    ChassisSerialNumber: str | None = None
    SlotID: int | None = None
    TrayIndex: int | None = None
    HostID: int | None = None


class NmxGpu(msgspec.Struct, frozen=True):
    """A GPU. Its DeviceUID identifies it within its domain, for as long as it exists."""

    DeviceUID: int
    DeviceID: int
    ID: str | None = None
    DomainUUID: str | None = None
    LocationInfo: NmxLocation | None = None
    PartitionID: int | None = None
    Health: str | None = None


NmxMember = str | NmxPlace


class NmxPartition(msgspec.Struct, frozen=True):
    """A partition. Members: null, or GPUs by id or by location."""

    ID: str
    PartitionID: int
    Name: str
    Health: str
    Members: list[NmxMember] | None


class NmxRequest(msgspec.Struct, frozen=True):
    """The request that an operation carries out."""

    Method: str
    URI: str
    Body: dict[str, Any] | None = None


class NmxResult(msgspec.Struct, frozen=True):
    """Why an operation failed."""

    Error: str | None = None
    Details: str | None = None


class NmxOperation(msgspec.Struct, frozen=True):
    """A change that NMX-M is carrying out, or has ended."""

    ID: str
    Status: str
    Request: NmxRequest
    CurrentStep: str = ""
    Result: NmxResult | None = None

    @property
    def target(self) -> str:
        """The id of the partition that the operation changes; empty for a new partition or anything
        else.
        """
        return urlsplit(self.Request.URI).path.partition("/partitions/")[2].strip("/")
