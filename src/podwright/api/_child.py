"""A launch on behalf of a program: `python -m podwright.api._child REQUEST REPORT`, two pipes.

It is poprun's walk in a process of its own: a launch wants signals, children and the main thread
for itself, which a program may need. The request is a line; the pipe stays open as long as the
program lives. The report is a line: `{"code": …}`, or `{"error": …}` as refusals travel.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import Any

from podwright.api._tether import end_with
from podwright.api._walk import plan_launch
from podwright.errors import Internal, PodwrightError
from podwright.launcher import Exchange, launch, parse


def main() -> int:
    """The launch's exit code."""
    request, report = map(int, sys.argv[1:3])
    for handle in (request, report):
        os.set_inheritable(handle, False)
    told = _line(request)
    end_with(request)
    try:
        code = _launch(told)
        said: dict[str, Any] = {"code": code}
    except PodwrightError as error:
        print(f"POPRUN ERROR: {error.message}", file=sys.stderr)
        code, said = error.exit_code, {"error": error.to_json(), "code": error.exit_code}
    except Exception as error:
        fault = Internal(f"{type(error).__name__}: {error}")
        code, said = 70, {"error": fault.to_json(), "code": 70}
    with contextlib.suppress(BrokenPipeError):  # nobody may be left who would want to know
        os.write(report, json.dumps(said).encode() + b"\n")
    return code


def _line(handle: int) -> dict[str, Any]:
    text = b""
    while not text.endswith(b"\n"):
        chunk = os.read(handle, 65536)
        if not chunk:
            sys.exit(1)
        text += chunk
    told: dict[str, Any] = json.loads(text)
    return told


def _launch(told: dict[str, Any]) -> int:
    options = parse(told["words"])
    environ = dict(os.environ)
    plan = plan_launch(options, environ)
    exchange = None
    if folder := told["folder"]:
        with open(os.path.join(folder, "call"), "rb") as file:
            exchange = Exchange(file.read(), folder)
    return launch(plan, environ, exchange=exchange)


if __name__ == "__main__":
    code = main()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)  # as poprun leaves: nothing is left to free
