"""The output of `--json`: values with all fields, defaults too. V-IPU's shapes are in the wire."""

from __future__ import annotations

import msgspec

from podwright.wire import plain
from podwright.wire._vipu_json import allocation as allocation
from podwright.wire._vipu_json import attributes as attributes
from podwright.wire._vipu_json import cluster as cluster
from podwright.wire._vipu_json import partition as partition
from podwright.wire._vipu_json import partition_with_devices as partition_with_devices


def text(value: object) -> str:
    """Return values, or data made of them, as JSON for people, indented by two blanks a level."""
    return msgspec.json.format(msgspec.json.encode(plain(value)), indent=2).decode()


def line(value: object) -> str:
    """Return the same on one line."""
    return msgspec.json.encode(plain(value)).decode()
