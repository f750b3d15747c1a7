"""The devices of partitions and the users of each, as `gc-info` and `gc-monitor` show them."""

from podwright.client.devices._device_listing import (
    described,
    listing,
    listing_json,
    monitor,
    monitor_json,
)
from podwright.client.devices._device_users import (
    ShownUse,
    device_of,
    only_used,
    read_device_uses,
)

__all__ = [
    "ShownUse",
    "described",
    "device_of",
    "listing",
    "listing_json",
    "monitor",
    "monitor_json",
    "only_used",
    "read_device_uses",
]
