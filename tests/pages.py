"""The commands on pages, and the output that the pages show for them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple


class Block(NamedTuple):
    """A command on a page, and the output that the page shows, if it shows any.

    A line `...` in it stands for any lines, and within a line for any words.
    """

    typed: str
    printed: str | None

    def fits(self, said: str) -> bool:
        """Return whether an output is the one on the page."""
        lines = (self.printed or "").splitlines()
        wanted = "".join(r"(?:.*\n)*" if line == "..." else _pattern(line) for line in lines)
        return self.printed is None or bool(re.fullmatch(wanted, said))


def _pattern(line: str) -> str:
    return re.escape(line).replace(r"\.\.\.", ".*") + "\n"


def blocks(page: Path) -> list[Block]:
    """Return a page's blocks of `bash`, each with the block of `text` that follows it."""
    found = re.findall(r"^```(bash|text)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return [
        Block(text, after[1] if after[0] == "text" else None)
        for (kind, text), after in zip(found, [*found[1:], ("", "")], strict=True)
        if kind == "bash"
    ]
