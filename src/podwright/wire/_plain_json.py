"""Values as JSON for people and dashboards: with every field, including defaults and empty lists.

The JSON that servers and commands exchange leaves these out.
"""

from __future__ import annotations

import enum
from typing import Any

from podwright.wire._value import Value


def plain(wire_value: Any) -> Any:
    """Return values as dicts with every field, and enums as their names."""
    if isinstance(wire_value, Value):
        return {name: plain(getattr(wire_value, name)) for name in wire_value.__struct_fields__}
    if isinstance(wire_value, enum.Enum):
        return wire_value.value
    if isinstance(wire_value, dict):
        return {key: plain(inner_value) for key, inner_value in wire_value.items()}
    if isinstance(wire_value, list | tuple):
        return [plain(inner_value) for inner_value in wire_value]
    return wire_value
