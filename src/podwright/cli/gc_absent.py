"""`gc-reset` and `gc-inventory`: V-IPU's scripts call them, and here the server does their work."""

from __future__ import annotations

import sys
from collections.abc import Sequence

#: What is typed in their place.
_INSTEAD = {
    "gc-reset": "A server resets the devices of a partition between its holders. "
    "To reset them now: vipu reset partition NAME",
    "gc-inventory": "A server knows the devices, and no program reads them from this machine. "
    "To list them: vipu list devices, vipu list ipu-attrs, or gc-info -l --all-partitions",
}


def reset(argv: Sequence[str] | None = None) -> int:
    """Say what resets devices, and return the exit code."""
    return _explain("gc-reset", sys.argv[1:] if argv is None else argv)


def inventory(argv: Sequence[str] | None = None) -> int:
    """Say what lists devices, and return the exit code."""
    return _explain("gc-inventory", sys.argv[1:] if argv is None else argv)


def _explain(prog: str, words: Sequence[str]) -> int:
    sentence = f"{prog} is not for this hardware. {_INSTEAD[prog]}."
    if "--help" in words or "-h" in words:
        print(sentence)
        return 0
    print(sentence, file=sys.stderr)
    return 2
