"""msgspec, imported in half the time: a command's start-up is waited for.

msgspec takes `get_type_hints` from typing_extensions wherever that happens to be installed, which
draws in `inspect`, `ast` and `tokenize`. Since Python 3.11 `typing` has all of it, and msgspec
falls back to that where there is no typing_extensions; so while it is imported, there is none.
"""

import sys

if "msgspec" not in sys.modules and "typing_extensions" not in sys.modules:
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]
    try:
        import msgspec  # noqa: F401
    finally:
        del sys.modules["typing_extensions"]
