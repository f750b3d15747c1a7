"""A launch on behalf of a program: `python -m podwright.api._child REQUEST REPORT`, two pipes.

The launch runs as poprun's does, in a process of its own: it needs signals, children and the main
thread for itself, and the program may need them too. The request is one line; its pipe stays open
as long as the program lives. The report is one line: `{"code": …}`, or `{"error": …}` in the form
in which refusals travel.
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
from podwright.launcher import TIMED_OUT, Exchange, LaunchResult, parse, run_plan


def main() -> int:
    """Run the launch that the request describes. Return its exit code."""
    request, report = map(int, sys.argv[1:3])
    for handle in (request, report):
        os.set_inheritable(handle, False)
    request_fields = _line(request)
    end_with(request)
    try:
        result = _launch(request_fields)
        code = result.code
        outcome: dict[str, Any] = {"code": code, "ending": _ending(result)}
    except PodwrightError as error:
        print(f"POPRUN ERROR: {error.message}", file=sys.stderr)
        code, outcome = error.exit_code, {"error": error.to_json(), "code": error.exit_code}
    except Exception as error:
        fault = Internal(f"{type(error).__name__}: {error}")
        code, outcome = 70, {"error": fault.to_json(), "code": 70}
    with contextlib.suppress(BrokenPipeError):  # the program has gone, so nobody reads the report
        os.write(report, json.dumps(outcome).encode() + b"\n")
    return code


def _line(handle: int) -> dict[str, Any]:
    text = b""
    while not text.endswith(b"\n"):
        chunk = os.read(handle, 65536)
        if not chunk:
            sys.exit(1)
        text += chunk
    fields: dict[str, Any] = json.loads(text)
    return fields


def _ending(result: LaunchResult) -> dict[str, Any]:
    """Return the report of a launch that has ended, for the program that launched it."""
    cause = result.cause
    if cause is None:
        return {}
    timed_out = cause.code == TIMED_OUT and cause.instance < 0
    return {"cause": cause.text, "instance": cause.instance, "timed_out": timed_out}


def _launch(fields: dict[str, Any]) -> LaunchResult:
    options = parse(fields["words"])
    environ = dict(os.environ)
    plan = plan_launch(options, environ)
    exchange = None
    if folder := fields["folder"]:
        with open(os.path.join(folder, "call"), "rb") as file:
            exchange = Exchange(file.read(), folder)
    return run_plan(plan, environ, exchange=exchange)


if __name__ == "__main__":
    code = main()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)  # poprun leaves in the same way: nothing is left to free
