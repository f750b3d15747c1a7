"""What stands between mpirun and an instance: a few lines of shell, and the streams it writes to.

mpirun hides how a process ended, may hang after the last one did, and breaks output lines. So
each instance is run by this script, which costs a millisecond: it points the output at the
instance's own two streams and says in a third, common to all, when the instance starts and how it
ended. mpirun is always told that all is well: it would kill the others at once, where poprun
first asks them. The shell ignores what asks a process to end, until its program has ended.

A shell passes on only variables whose names it could itself assign. Others, such as the functions
that bash exports, are put back by the second script, which is used only where there are any.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from podwright.hosts import find_program, read_cores, write_list
from podwright.launch._folder import RunFolder
from podwright.launch._placement import places

_SCRIPT = """\
trap : HUP INT QUIT TERM USR1 USR2 ALRM
exec 2>/dev/null 3>"$PODWRIGHT_STREAMS/status"
echo "$1 start $$" >&3
(
  [ "$POPDIST_EXECUTABLE_CACHE_PATH" != temporary ] ||
    export POPDIST_EXECUTABLE_CACHE_PATH="${0%/*}/cache"
  [ ! -r "${0%/*}/cpus.$1" ] || read -r PODWRIGHT_CPUS <"${0%/*}/cpus.$1"
  export PODWRIGHT_CPUS
  if [ -n "$PODWRIGHT_GPUS" ]; then
    left=$1
    while [ "$left" -gt 0 ]; do PODWRIGHT_GPUS=${PODWRIGHT_GPUS#*;} left=$((left - 1)); done
    for name in $PODWRIGHT_GPUS_AS; do export "$name=${PODWRIGHT_GPUS%%;*}"; done
    unset PODWRIGHT_GPUS PODWRIGHT_GPUS_AS
  fi
  [ ! -r "${0%/*}/gpus.$1" ] || . "${0%/*}/gpus.$1"
  shift
  exec ${PODWRIGHT_CPUS:+taskset -c "$PODWRIGHT_CPUS"} "$@"
) >"$PODWRIGHT_STREAMS/out.$1" 2>"$PODWRIGHT_STREAMS/err.$1" 3>&-
echo "$1 end $?" >&3
"""

_RESTORE = """\
import marshal, os, sys
with open(sys.argv[1], "rb") as file:
    os.environb.update(marshal.load(file))
try:
    os.execvp(sys.argv[2], sys.argv[2:])
except OSError as error:
    print(f"{sys.argv[2]}: {error.strerror}", file=sys.stderr)
    sys.exit(126 if isinstance(error, PermissionError) else 127)
"""

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


class Event(NamedTuple):
    """What the script said: instance `rank` started as process `number`, or ended with it."""

    rank: int
    kind: str
    number: int


def make_shim(
    folder: RunFolder, instances: Iterable[int], instead: Mapping[str, str] | None = None
) -> list[str]:
    """Put script and streams into the folder; the words in front of an instance's index.

    instead: values of variables that are other ones on this host than on poprun's, if set at all.
    """
    for index in instances:
        for stream in ("out", "err"):
            os.mkfifo(folder.stream(f"{stream}.{index}"), 0o600)
    os.mkfifo(folder.stream("status"), 0o600)
    os.mkdir(folder.file("cache"), 0o700)
    own = [f'[ -z "${name}" ] || {name}={shlex.quote(v)}\n' for name, v in (instead or {}).items()]
    own.append(f"PODWRIGHT_STREAMS={shlex.quote(folder.shared_memory)}\n")
    _write(folder.file("shim"), "".join([*own, _SCRIPT]).encode())
    return ["/bin/sh", folder.file("shim")]


def bind(
    folder: RunFolder,
    ranks: Sequence[int],
    how: str,
    environ: Mapping[str, str],
    gpus: Sequence[Any] = (),
) -> None:
    """Say in files which hardware threads of this host its instances are to be bound to.

    gpus: how many GPUs each drives, and which of them it sees, where they are Slurm's.
    """
    if gpus and ranks:
        from podwright.launch._gpus import shares, write_shell

        cores = read_cores(environ) if how != "disabled" else None
        can = find_program("taskset", environ) is not None
        for rank, share in zip(
            ranks, shares(len(ranks), gpus[0], gpus[1], how, cores, environ), strict=True
        ):
            _write(folder.file(f"gpus.{rank}"), write_shell(share.variables).encode())
            if share.cpus and can:
                _write(folder.file(f"cpus.{rank}"), f"{share.cpus}\n".encode())
        return
    if how == "disabled" or not ranks or find_program("taskset", environ) is None:
        return
    cores = read_cores(environ)
    found = places(how, cores, len(ranks)) if cores else ()
    for rank, place in zip(ranks, found, strict=False):
        if place.bound:
            _write(folder.file(f"cpus.{rank}"), f"{write_list(place.cpus)}\n".encode())


def restore(folder: RunFolder, environ: Mapping[str, str]) -> list[str]:
    """Words in front of a program that put back the variables a shell would drop; or none."""
    odd = {n: v for n, v in environ.items() if not _PLAIN.fullmatch(n)}
    if not odd:
        return []
    import marshal

    encoded = {os.fsencode(name): os.fsencode(value) for name, value in odd.items()}
    _write(folder.file("environ"), marshal.dumps(encoded))
    _write(folder.file("restore"), _RESTORE.encode())
    return [sys.executable, "-I", "-S", folder.file("restore"), folder.file("environ")]


def open_stream(folder: RunFolder, name: str) -> int:
    """The reading end of one stream, before anything writes to it; it never blocks."""
    return os.open(folder.stream(name), _READ)


def open_status(folder: RunFolder) -> int:
    """The reading end of the status stream; it stays open though no instance has it open."""
    return os.open(folder.stream("status"), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


def read_events(handle: int, rest: bytes) -> tuple[list[Event], bytes]:
    """What the scripts said since; and the beginning of what is still to come."""
    with contextlib.suppress(BlockingIOError):
        while chunk := os.read(handle, 65536):
            rest += chunk
    *lines, rest = rest.split(b"\n")
    events = []
    for line in lines:
        words = line.split()
        if len(words) == 3 and words[0].isdigit() and words[2].isdigit():
            events.append(Event(int(words[0]), words[1].decode(), int(words[2])))
    return events, rest


def _write(path: str, content: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(handle, "wb") as file:
        file.write(content)
