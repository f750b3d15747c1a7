"""Values as JSON for people and dashboards: with every field, including defaults and empty lists.

The JSON that servers and commands exchange leaves these out.
"""

from __future__ import annotations

import enum
from typing import Any

from podwright.wire._value import Value


def plain(value: Any) -> Any:
    """Return values as dicts with every field, and enums as their names."""
    if isinstance(value, Value):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value
