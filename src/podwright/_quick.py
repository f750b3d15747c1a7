"""msgspec, imported in half the time: a command's start-up is waited for.

While it is imported, msgspec finds nothing of what our values neither hold nor ask for:

- typing_extensions, which draws in `inspect`, `ast` and `tokenize`: since Python 3.11 `typing`
  has all of it, and msgspec falls back to that;
- uuid, decimal: no field of ours has such a type; msgspec knows neither from here on;
- its own inspect and JSON schema: they describe types, for nobody here.

All of them can still be imported afterwards.
"""

import sys
from types import ModuleType, SimpleNamespace


def _module(name: str, **content: object) -> ModuleType:
    made = ModuleType(name)
    vars(made).update(content)
    return made


if "msgspec" not in sys.modules:
    _absent: dict[str, ModuleType | None] = {
        "typing_extensions": None,
        "uuid": _module("uuid", UUID=type("UUID", (), {}), SafeUUID=SimpleNamespace(unknown=None)),
        "decimal": _module("decimal", Decimal=type("Decimal", (), {})),
        "msgspec.inspect": _module("msgspec.inspect"),
        "msgspec._json_schema": _module("_json_schema", schema=None, schema_components=None),
    }
    for _name in _absent.keys() & sys.modules.keys():
        del _absent[_name]
    sys.modules.update(_absent)  # type: ignore[arg-type]
    try:
        import msgspec  # noqa: F401
    except (ImportError, AttributeError):  # one that wants more of them: whole, when first used
        for _name in [name for name in sys.modules if name.startswith("msgspec")]:
            _absent.setdefault(_name, None)
    finally:
        for _name in _absent:
            del sys.modules[_name]
