"""What is said to whoever may have gone: the same error on every event loop.

asyncio's own loop drops what is written to a lost connection and says so at the next `drain`;
uvloop, which `vipu-server` runs on, raises RuntimeError, which nobody takes for "they have gone".
"""

from __future__ import annotations

import asyncio
import contextlib


def say(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Write. Raises ConnectionResetError where the connection is lost already."""
    if writer.is_closing():
        raise ConnectionResetError("the other side has gone")
    writer.write(data)


def end(writer: asyncio.StreamWriter) -> None:
    """Say that nothing more comes; nobody may be left to hear it."""
    if not writer.is_closing():
        with contextlib.suppress(OSError):
            writer.write_eof()
