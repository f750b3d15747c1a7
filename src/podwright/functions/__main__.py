"""An instance: calls the function that was sent to it, and sends back how the call ended.

poprun names both files in two variables. In a job of Slurm's there are two arguments instead: the
file with the call, and the folder for `result.RANK`.
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
from podwright.functions._trusted_files import open_own


def main() -> int:
    """Return 0 if the function returned, 1 if it raised, and its own code after sys.exit()."""
    payload = os.environ.pop(PAYLOAD_VARIABLE, "")
    result = os.environ.pop(RESULT_VARIABLE, "")
    if len(sys.argv) == 3:
        rank = int(os.environ.get("SLURM_PROCID", "0"))
        payload, result = sys.argv[1], os.path.join(sys.argv[2], f"result.{rank}")
    if not payload or not result:
        print("podwright.functions is started by podwright.launch()", file=sys.stderr)
        return 2
    code, outcome = _call(payload)
    _write(result, outcome)
    return code


def _call(payload: str) -> tuple[int, bytes]:
    host = socket.gethostname()
    try:
        with open_own(payload) as file:
            call = load_call(file, host)
        value: Any = call.function(*call.args, **call.kwargs)
        return 0, returned(value)
    except BaseException as error:
        if isinstance(error, SystemExit) and not error.code:
            return 0, returned(None)
        traceback.print_exc()
        code = error.code if isinstance(error, SystemExit) else 1
        return code if isinstance(code, int) else 1, raised(error, host)


def _write(path: str, outcome: bytes) -> None:
    """Write into the stream that poprun reads, or into a file, as a whole or not at all."""
    if _is_stream(path):
        descriptor, flags = path, os.O_WRONLY
    else:
        descriptor, flags = f"{path}.{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_EXCL
    handle = os.open(descriptor, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(outcome)
    if descriptor != path:
        os.replace(descriptor, path)


def _is_stream(path: str) -> bool:
    try:
        return stat.S_ISFIFO(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False


if __name__ == "__main__":
    sys.exit(main())
