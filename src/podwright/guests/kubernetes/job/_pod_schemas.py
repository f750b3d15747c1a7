"""Kubernetes' objects as schemas, out of a table of fields that a person can read.

The table (`pod_fields.txt`) has a shape a line; here it becomes OpenAPI v3, as CRDs want it.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Any, Final

Schema = dict[str, Any]

_SHAPE_START_PATTERN: Final = re.compile(r"(?m)^(\w+): ")
_TYPE_PATTERN: Final = re.compile(
    r"(?P<open>[\[{])?(?P<name>[\w-]+)(?: by (?P<keys>[\w,]+))?[\]}]?(?:=(?P<default>\w+))?"
)
#: Kubernetes' quantities (resource.Quantity) as text: a number, and a suffix or an exponent.
_QUANTITY_PATTERN: Final = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
_NUMBER_OR_TEXT: Final[Schema] = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "x-kubernetes-int-or-string": True,
}
_PLAIN_SCHEMAS: Final[dict[str, Schema]] = {
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "number-or-text": _NUMBER_OR_TEXT,
    "object": {"type": "object"},
    "quantity": _NUMBER_OR_TEXT | {"pattern": _QUANTITY_PATTERN},
    "text": {"type": "string"},
    "time": {"type": "string", "format": "date-time"},
}


def plain(type_name: str, **extra_keys: Any) -> Schema:
    """The schema of a plain value, with what else is said of it."""
    return _PLAIN_SCHEMAS[type_name] | extra_keys


def pod_template() -> Schema:
    """The pod template of an IPUJob."""
    return _shape_schema("PodTemplate")


def _shape_schema(name: str) -> Schema:
    pairs = [text.split(" ", 1) for text in _shape_table()[name].split("; ")]
    object_schema: Schema = {
        "type": "object",
        "properties": {name.rstrip("!"): _field_schema(field_type) for name, field_type in pairs},
    }
    fields = [name[:-1] for name, _ in pairs if name.endswith("!")]
    if fields:
        object_schema["required"] = fields
    return object_schema


def _field_schema(type_text: str) -> Schema:
    type_match = _TYPE_PATTERN.fullmatch(type_text)
    assert type_match, type_text
    element_schema = (
        plain(type_match["name"])
        if type_match["name"] in _PLAIN_SCHEMAS
        else _shape_schema(type_match["name"])
    )
    if type_match["default"]:
        element_schema["default"] = type_match["default"]
    if type_match["open"] == "{":
        return {"type": "object", "additionalProperties": element_schema}
    if type_match["open"] == "[":
        list_keys: Schema = {}
        if type_match["keys"]:
            list_keys = {
                "x-kubernetes-list-map-keys": type_match["keys"].split(","),
                "x-kubernetes-list-type": "map",
            }
        return {"type": "array", "items": element_schema} | list_keys
    return element_schema


@cache
def _shape_table() -> dict[str, str]:
    table_text = files(__package__).joinpath("pod_fields.txt").read_text(encoding="utf-8")
    shape_lines = [line for line in table_text.splitlines() if line and not line.startswith("#")]
    parts = _SHAPE_START_PATTERN.split("\n".join(shape_lines))
    return {
        name: " ".join(fields_text.split())
        for name, fields_text in zip(parts[1::2], parts[2::2], strict=True)
    }
