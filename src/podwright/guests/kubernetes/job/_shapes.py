"""Kubernetes' objects as schemas, out of a table of fields that a person can read.

The table (`pod_fields.txt`) has a shape a line; here it becomes OpenAPI v3, as CRDs want it.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Any, Final

Schema = dict[str, Any]

_SHAPE: Final = re.compile(r"(?m)^(\w+): ")
_TYPE: Final = re.compile(
    r"(?P<open>[\[{])?(?P<name>[\w-]+)(?: by (?P<keys>[\w,]+))?[\]}]?(?:=(?P<default>\w+))?"
)
#: Kubernetes' quantities (resource.Quantity) as text: a number, and a suffix or an exponent.
_QUANTITY: Final = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
_EITHER: Final[Schema] = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "x-kubernetes-int-or-string": True,
}
_PLAIN: Final[dict[str, Schema]] = {
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "number-or-text": _EITHER,
    "object": {"type": "object"},
    "quantity": _EITHER | {"pattern": _QUANTITY},
    "text": {"type": "string"},
    "time": {"type": "string", "format": "date-time"},
}


def plain(name: str, **more: Any) -> Schema:
    """The schema of a plain value, with what else is said of it."""
    return _PLAIN[name] | more


def pod_template() -> Schema:
    """The pod template of an IPUJob."""
    return _shape("PodTemplate")


def _shape(name: str) -> Schema:
    fields = [field.split(" ", 1) for field in _table()[name].split("; ")]
    out: Schema = {
        "type": "object",
        "properties": {name.rstrip("!"): _value(kind) for name, kind in fields},
    }
    required = [name[:-1] for name, _ in fields if name.endswith("!")]
    if required:
        out["required"] = required
    return out


def _value(kind: str) -> Schema:
    match = _TYPE.fullmatch(kind)
    assert match, kind
    element = plain(match["name"]) if match["name"] in _PLAIN else _shape(match["name"])
    if match["default"]:
        element["default"] = match["default"]
    if match["open"] == "{":
        return {"type": "object", "additionalProperties": element}
    if match["open"] == "[":
        keys: Schema = {}
        if match["keys"]:
            keys = {
                "x-kubernetes-list-map-keys": match["keys"].split(","),
                "x-kubernetes-list-type": "map",
            }
        return {"type": "array", "items": element} | keys
    return element


@cache
def _table() -> dict[str, str]:
    text = files(__package__).joinpath("pod_fields.txt").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    parts = _SHAPE.split("\n".join(lines))
    return {
        name: " ".join(cell.split()) for name, cell in zip(parts[1::2], parts[2::2], strict=True)
    }
