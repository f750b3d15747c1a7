"""The devices of partitions and the users of each, as `gc-info` and `gc-monitor` show them."""

from ._device_listing import described as described
from ._device_listing import listing as listing
from ._device_listing import listing_json as listing_json
from ._device_listing import monitor as monitor
from ._device_listing import monitor_json as monitor_json
from ._device_users import ShownUse as ShownUse
from ._device_users import device_of as device_of
from ._device_users import only_used as only_used
from ._device_users import read_device_uses as read_device_uses
