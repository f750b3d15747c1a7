"""Programs by which the kernel decides which device files a cgroup v2 may open, through bpf(2).

A program is a handful of instructions, so it is written here as such and needs no compiler. An
attached program stays with the cgroup, even after the process that attached it ends, and goes with
the cgroup.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Iterable

#: The system call's number, by machine (asm/unistd.h).
_CALLS = {"x86_64": 321, "aarch64": 280, "ppc64le": 361}
_PROG_LOAD, _PROG_ATTACH, _PROG_DETACH, _PROG_GET_FD_BY_ID, _PROG_QUERY = 5, 8, 9, 13, 16
_TYPE_CGROUP_DEVICE, _ATTACH_CGROUP_DEVICE, _ALLOW_MULTI = 15, 6, 2
_CHARACTER = 2
_MOST = 64
#: Instructions: load a word; and; skip `offset` instructions if unequal; set; exit.
_LOAD, _AND, _UNEQUAL, _SET, _EXIT = 0x61, 0x57, 0x55, 0xB7, 0x95


def refusing(denied: Iterable[tuple[int, int]]) -> bytes:
    """Return a program that refuses these character devices (major, minor) and allows all others.

    The program finds in the context at r1: the access, whose lower half is the kind of device; the
    major number; the minor number.
    """
    code = [
        _instruction(_LOAD, 2, source=1, offset=0),
        _instruction(_AND, 2, value=0xFFFF),
        _instruction(_LOAD, 3, source=1, offset=4),
        _instruction(_LOAD, 4, source=1, offset=8),
    ]
    for major, minor in sorted(set(denied)):
        code += [
            _instruction(_UNEQUAL, 2, offset=4, value=_CHARACTER),
            _instruction(_UNEQUAL, 3, offset=3, value=major),
            _instruction(_UNEQUAL, 4, offset=2, value=minor),
            _instruction(_SET, 0, value=0),
            _instruction(_EXIT),
        ]
    return b"".join([*code, _instruction(_SET, 0, value=1), _instruction(_EXIT)])


def confine(cgroup: str, denied: Iterable[tuple[int, int]]) -> None:
    """Make processes in this cgroup unable to open these devices, and able to open all others.

    Raises OSError. The new program is attached before the old one is detached, so no device is open
    in between. If this process is killed in between, both programs stay: a device that either
    refuses is refused, and the next call removes the older one.
    """
    group = os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        before = _attached(group)
        fresh = _load(refusing(denied))
        try:
            words = struct.pack("IIII", group, fresh, _ATTACH_CGROUP_DEVICE, _ALLOW_MULTI)
            _bpf(_PROG_ATTACH, words)
        finally:
            os.close(fresh)
        for number in before:
            old = _bpf(_PROG_GET_FD_BY_ID, struct.pack("I", number))
            try:
                _bpf(_PROG_DETACH, struct.pack("IIII", group, old, _ATTACH_CGROUP_DEVICE, 0))
            finally:
                os.close(old)
    finally:
        os.close(group)


def _attached(group: int) -> list[int]:
    """Return the ids of the programs that are attached to the cgroup itself."""
    ids = (ctypes.c_uint32 * _MOST)()
    words = ctypes.create_string_buffer(
        struct.pack("IIIIQI", group, _ATTACH_CGROUP_DEVICE, 0, 0, ctypes.addressof(ids), _MOST), 64
    )
    _call(_PROG_QUERY, words)
    (count,) = struct.unpack_from("I", words, 24)
    return list(ids[:count])


def _load(code: bytes) -> int:
    program = ctypes.create_string_buffer(code, len(code))
    licence = ctypes.create_string_buffer(b"MIT")
    return _bpf(
        _PROG_LOAD,
        struct.pack(
            "IIQQ",
            _TYPE_CGROUP_DEVICE,
            len(code) // 8,
            ctypes.addressof(program),
            ctypes.addressof(licence),
        ),
    )


def _instruction(code: int, to: int = 0, source: int = 0, offset: int = 0, value: int = 0) -> bytes:
    return struct.pack("=BBhi", code, source << 4 | to, offset, value)


def _bpf(command: int, words: bytes) -> int:
    return _call(command, ctypes.create_string_buffer(words, 128))


def _call(command: int, words: ctypes.Array[ctypes.c_char]) -> int:
    number = _CALLS.get(platform.machine())
    if number is None:
        raise OSError(38, f"bpf(2) is not known on {platform.machine()}")
    libc = ctypes.CDLL(None, use_errno=True)
    done = int(libc.syscall(number, command, words, len(words)))
    if done < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return done
