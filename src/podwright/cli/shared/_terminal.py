"""The characters of a terminal's locale, so that standard output accepts every text; progress.

This concerns only terminals: output to a pipe or a file is the same everywhere.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

_PLAIN = {"\u2026": "...", "\u2192": "->", "\u00b7": "-", "\u2013": "-", "\u2014": "-"}
_PLAIN |= {"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"'}


def fit_locale(environ: Mapping[str, str] | None = None) -> None:
    """Make standard output and standard error accept every text.

    Bytes that were read from a file and are not text are written unchanged. On a terminal whose
    locale is not UTF-8, characters beyond ASCII are replaced by ASCII ones.
    """
    import codecs

    codecs.register_error("podwright", _replaced)
    plain = not utf8(os.environ if environ is None else environ)
    for stream in (sys.stdout, sys.stderr):
        if not hasattr(stream, "reconfigure"):
            continue
        if plain and stream.isatty():
            stream.reconfigure(encoding="ascii", errors="podwright")
        elif stream.errors == "strict":
            stream.reconfigure(errors="podwright")


def utf8(environ: Mapping[str, str]) -> bool:
    """Return whether the locale's variables name UTF-8 (POSIX, chapter 8.2)."""
    locale = next((environ[n] for n in ("LC_ALL", "LC_CTYPE", "LANG") if environ.get(n)), "")
    return locale.lower().replace("-", "").partition("@")[0].endswith(".utf8")


def _replaced(error: UnicodeError) -> tuple[str | bytes, int]:
    assert isinstance(error, UnicodeEncodeError)
    letter = error.object[error.start]
    if "\udc80" <= letter <= "\udcff":  # a byte that was read and is not text
        return bytes([ord(letter) - 0xDC00]), error.start + 1
    return _PLAIN.get(letter, "?"), error.start + 1


class ProgressLine:
    """A line on a terminal's standard error that is written anew. Nothing is printed elsewhere."""

    def __init__(self) -> None:
        self._out = sys.stderr if sys.stderr.isatty() else None

    def write(self, text: str) -> None:
        """Print a text over the former one."""
        if self._out is not None:
            self._out.write(f"\r{text}")
            self._out.flush()

    def clear(self) -> None:
        """Remove the line."""
        self.write("\x1b[K")
