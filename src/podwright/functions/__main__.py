"""An instance: calls the function that was sent to it, and sends back how the call ended.

poprun names both files in two variables.
"""

from __future__ import annotations

import os
import socket
import stat
import sys
import traceback
from typing import Any

from podwright.functions import PAYLOAD_VARIABLE, RESULT_VARIABLE
from podwright.functions._call import load_call
from podwright.functions._call_outcome import raised, returned
from podwright.functions._trusted_files import open_own_file
from podwright.ground.durable_files import write_whole


def main() -> int:
    """Return 0 if the function returned, 1 if it raised, and its own code after sys.exit()."""
    payload_path = os.environ.pop(PAYLOAD_VARIABLE, "")
    result_path = os.environ.pop(RESULT_VARIABLE, "")
    if not payload_path or not result_path:
        print("podwright.functions is started by podwright.launch()", file=sys.stderr)
        return 2
    code, outcome_bytes = _call_function(payload_path)
    _write_outcome(result_path, outcome_bytes)
    return code


def _call_function(payload_path: str) -> tuple[int, bytes]:
    name = socket.gethostname()
    try:
        with open_own_file(payload_path) as file:
            function_call = load_call(file, name)
        return_value: Any = function_call.function(*function_call.args, **function_call.kwargs)
        return 0, returned(return_value)
    except BaseException as error:
        if isinstance(error, SystemExit) and not error.code:
            return 0, returned(None)
        traceback.print_exc()
        code = error.code if isinstance(error, SystemExit) else 1
        return code if isinstance(code, int) else 1, raised(error, name)


def _write_outcome(result_path: str, outcome_bytes: bytes) -> None:
    """Write into the stream that poprun reads, or into a file, as a whole or not at all."""
    if not _is_fifo(result_path):
        write_whole(result_path, outcome_bytes)
        return
    with open(os.open(result_path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "wb") as stream:
        stream.write(outcome_bytes)


def _is_fifo(path: str) -> bool:
    try:
        return stat.S_ISFIFO(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False


if __name__ == "__main__":
    sys.exit(main())
