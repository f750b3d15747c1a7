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

from podwright.api._end_with_parent import terminate_on_close
from podwright.api._plan_launch import plan_launch
from podwright.errors import Internal, PodwrightError
from podwright.launcher import TIMED_OUT, Exchange, LaunchResult, launch, parse


def main() -> int:
    """Run the launch that the request describes. Return its exit code."""
    request_pipe, report_pipe = map(int, sys.argv[1:3])
    for pipe_fd in (request_pipe, report_pipe):
        os.set_inheritable(pipe_fd, False)
    request_fields = _read_request(request_pipe)
    terminate_on_close(request_pipe)
    try:
        launch_result = _run_launch(request_fields)
        exit_code = launch_result.code
        report_fields: dict[str, Any] = {"code": exit_code, "ending": _launch_report(launch_result)}
    except PodwrightError as error:
        print(f"POPRUN ERROR: {error.message}", file=sys.stderr)
        exit_code, report_fields = (
            error.exit_code,
            {"error": error.to_json(), "code": error.exit_code},
        )
    except Exception as error:
        internal_error = Internal(f"{type(error).__name__}: {error}")
        exit_code, report_fields = 70, {"error": internal_error.to_json(), "code": 70}
    with contextlib.suppress(BrokenPipeError):  # the program has gone, so nobody reads the report
        os.write(report_pipe, json.dumps(report_fields).encode() + b"\n")
    return exit_code


def _read_request(request_pipe: int) -> dict[str, Any]:
    line = b""
    while not line.endswith(b"\n"):
        chunk = os.read(request_pipe, 65536)
        if not chunk:
            sys.exit(1)
        line += chunk
    fields: dict[str, Any] = json.loads(line)
    return fields


def _launch_report(launch_result: LaunchResult) -> dict[str, Any]:
    """Return the report of a launch that has ended, for the program that launched it."""
    cause = launch_result.cause
    if cause is None:
        return {}
    timed_out = cause.code == TIMED_OUT and cause.instance < 0
    return {"cause": cause.text, "instance": cause.instance, "timed_out": timed_out}


def _run_launch(request_fields: dict[str, Any]) -> LaunchResult:
    options = parse(request_fields["words"])
    environ = dict(os.environ)
    plan = plan_launch(options, environ)
    exchange = None
    if folder := request_fields["folder"]:
        with open(os.path.join(folder, "call"), "rb") as file:
            exchange = Exchange(file.read(), folder)
    return launch(plan, environ, exchange=exchange)


if __name__ == "__main__":
    code = main()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)  # poprun leaves in the same way: nothing is left to free
