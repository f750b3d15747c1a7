"""The script between mpirun and an instance, and the streams that it writes to.

mpirun hides how a process ended, may hang after the last one did, and breaks output lines. So each
instance is run by this script, which costs a millisecond. It connects the output to the instance's
own two streams. It reports in a third stream, common to all, when the instance starts and how it
ended. mpirun always gets a success code: after a failure it would kill the others at once, while
poprun first asks them to end. The shell ignores the signals that ask a process to end, until its
program has ended.

The variables of a single instance are in a file beside the script, so that mpirun has one context
for all instances of a host: each further context costs mpirun more than the process in it does. The
script opens the common stream before anything else, and so waits until poprun listens. Therefore
mpirun can be started while the partition is still being requested (_launch).

A shell passes on only variables whose names it could itself assign. Others, such as the functions
that bash exports, are restored by a second script, which is used only if there are any.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from podwright.launcher.instances._function_exchange import (
    PAYLOAD_VARIABLE,
    RESULT_STREAM,
    RESULT_VARIABLE,
    TRACE_STREAM,
    TRACE_VARIABLE,
    streams,
)
from podwright.launcher.instances._run_folder import RunFolder

_WRAPPER_SCRIPT = """\
trap : HUP INT QUIT TERM USR1 USR2 ALRM
[ "$1" != - ] || { shift; set -- "$PMIX_RANK" "$@"; }
[ ! -e "$PODWRIGHT_STREAMS/in.$1" ] || exec <"$PODWRIGHT_STREAMS/in.$1"
exec 2>/dev/null 3>"$PODWRIGHT_STREAMS/status"
echo "$1 start $$" >&3
(
  [ "$POPDIST_EXECUTABLE_CACHE_PATH" != temporary ] ||
    export POPDIST_EXECUTABLE_CACHE_PATH="${0%/*}/cache"
  [ ! -r "${0%/*}/given" ] || . "${0%/*}/given"
  if [ -n "$PODWRIGHT_GPUS" ]; then
    left=$1
    while [ "$left" -gt 0 ]; do PODWRIGHT_GPUS=${PODWRIGHT_GPUS#*;} left=$((left - 1)); done
    for name in $PODWRIGHT_GPUS_AS; do export "$name=${PODWRIGHT_GPUS%%;*}"; done
    unset PODWRIGHT_GPUS PODWRIGHT_GPUS_AS
  fi
  : "${TORCHELASTIC_ERROR_FILE:=$PODWRIGHT_STREAMS/error.$1}"
  export TORCHELASTIC_ERROR_FILE
  . "$PODWRIGHT_STREAMS/own.$1"
  exec "$@"
) >"$PODWRIGHT_STREAMS/out.$1" 2>"$PODWRIGHT_STREAMS/err.$1" 3>&-
echo "$1 end $?" >&3
"""

_RESTORE_SCRIPT = """\
import marshal, os, sys
with open(sys.argv[1], "rb") as file:
    os.environb.update(marshal.load(file))
try:
    os.execvp(sys.argv[2], sys.argv[2:])
except OSError as error:
    print(f"{sys.argv[2]}: {error.strerror}", file=sys.stderr)
    sys.exit(126 if isinstance(error, PermissionError) else 127)
"""

#: Stands for the rank of an instance when mpirun's own count gives it.
RANK_BY_MPIRUN = "-"
_SHELL_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_STREAM_OPEN_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


class Event(NamedTuple):
    """A report of the script: instance `rank` started as process `number`, or ended with that
    code.
    """

    rank: int
    kind: str
    number: int

    @property
    def failed(self) -> bool:
        """Whether the instance ended with a failure."""
        return self.kind == "end" and self.number != 0


class Own(NamedTuple):
    """What one instance has beyond all others: variables, and words in front of its program."""

    variables: Mapping[str, str]
    words: Sequence[str] = ()


def make_wrapper(
    folder: RunFolder,
    own_by_rank: Mapping[int, Own],
    replaced_variables: Mapping[str, str] | None = None,
    *,
    returns: bool = False,
    traces: bool = False,
) -> list[str]:
    """Create script and streams in the folder. Returns the words in front of an instance's rank, or
    `-`.

    own_by_rank: by the rank of each instance of this host. returns: whether each has a stream for
    its result. traces: whether each has one for its records. replaced_variables: variables with
    other values on this host than on poprun's, which are replaced if they are set.
    """
    for rank, own_settings in own_by_rank.items():
        for name in streams(returns=returns, traces=traces):
            os.mkfifo(folder.local_path(folder.stream(f"{name}.{rank}")), 0o600)
        if returns:
            exchange_variables = {
                PAYLOAD_VARIABLE: folder.file("payload"),
                RESULT_VARIABLE: folder.stream(f"{RESULT_STREAM}.{rank}"),
            }
            own_settings = own_settings._replace(
                variables={**own_settings.variables, **exchange_variables}
            )
        if traces:
            trace_variable = {TRACE_VARIABLE: folder.stream(f"{TRACE_STREAM}.{rank}")}
            own_settings = own_settings._replace(
                variables={**own_settings.variables, **trace_variable}
            )
        own_script = _instance_own_script(own_settings).encode(errors="surrogateescape")
        _write_new_file(folder.local_path(folder.stream(f"own.{rank}")), own_script)
    os.mkfifo(folder.local_path(folder.stream("status")), 0o600)
    os.mkdir(folder.local_path(folder.file("cache")), 0o700)
    script_lines = [
        f'[ -z "${variable}" ] || {variable}={shlex.quote(value)}\n'
        for variable, value in (replaced_variables or {}).items()
    ]
    script_lines.append(f"PODWRIGHT_STREAMS={shlex.quote(folder.shared_memory)}\n")
    _write_new_file(
        folder.local_path(folder.file("wrapper")),
        "".join([*script_lines, _WRAPPER_SCRIPT]).encode(),
    )
    return ["/bin/sh", folder.file("wrapper")]


def _instance_own_script(own_settings: Own) -> str:
    assignments = [
        f"{name}={value}"
        for name, value in own_settings.variables.items()
        if not _SHELL_VARIABLE_NAME.fullmatch(name)
    ]
    words = shlex.join(
        [*(["/usr/bin/env", *assignments] if assignments else ()), *own_settings.words]
    )
    script_end = f'shift\nset -- {words} "$@"\n' if words else "shift\n"
    return _shell_exports(own_settings.variables) + script_end


def give(folder: RunFolder, variables: Mapping[str, str]) -> None:
    """Give all instances of this host variables that were not known when mpirun was started."""
    _write_new_file(
        folder.local_path(folder.file("given")),
        _shell_exports(variables).encode(errors="surrogateescape"),
    )


def _shell_exports(variables: Mapping[str, str]) -> str:
    """Return shell code that sets the variables whose names a shell could assign."""
    plain_variables = {
        name: value for name, value in variables.items() if _SHELL_VARIABLE_NAME.fullmatch(name)
    }
    return "".join(
        f"export {name}={shlex.quote(value)}\n" for name, value in plain_variables.items()
    )


def restore(folder: RunFolder, environ: Mapping[str, str]) -> list[str]:
    """Return words in front of a program that restore the variables a shell would drop; or none."""
    odd_variables = {
        variable: text
        for variable, text in environ.items()
        if not _SHELL_VARIABLE_NAME.fullmatch(variable)
    }
    if not odd_variables:
        return []
    import marshal

    encoded_variables = {
        os.fsencode(name): os.fsencode(value) for name, value in odd_variables.items()
    }
    _write_new_file(folder.local_path(folder.file("environ")), marshal.dumps(encoded_variables))
    _write_new_file(folder.local_path(folder.file("restore")), _RESTORE_SCRIPT.encode())
    return [sys.executable, "-I", "-S", folder.file("restore"), folder.file("environ")]


def open_stream(folder: RunFolder, stream_name: str) -> int:
    """Open a stream for reading, before anything writes to it. Reads never block."""
    return os.open(folder.local_path(folder.stream(stream_name)), _STREAM_OPEN_FLAGS)


class StatusPipe:
    """What the scripts in front of a host's instances report. handle: readable when one has.

    The pipe is open for writing here too, so it does not read as ended while no instance has it
    open.
    """

    def __init__(self, folder: RunFolder) -> None:
        self.handle = os.open(
            folder.local_path(folder.stream("status")), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC
        )
        self._partial = b""

    def read(self) -> list[Event]:
        """Return the reports since the last call. What is no report is passed over."""
        data = self._partial
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self.handle, 65536):
                data += chunk
        *lines, self._partial = data.split(b"\n")
        events = []
        for line in lines:
            fields = line.split()
            if len(fields) == 3 and fields[0].isdigit() and fields[2].isdigit():
                events.append(Event(int(fields[0]), fields[1].decode(), int(fields[2])))
        return events

    def close(self) -> None:
        """Close the pipe."""
        os.close(self.handle)


def _write_new_file(path: str, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        while content:
            content = content[os.write(descriptor, content) :]
    finally:
        os.close(descriptor)
