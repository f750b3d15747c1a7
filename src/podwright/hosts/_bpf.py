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
_SYSCALL_NUMBERS = {"x86_64": 321, "aarch64": 280, "ppc64le": 361}
_PROG_LOAD, _PROG_ATTACH, _PROG_DETACH, _PROG_GET_FD_BY_ID, _PROG_QUERY = 5, 8, 9, 13, 16
_TYPE_CGROUP_DEVICE, _ATTACH_CGROUP_DEVICE, _ALLOW_MULTI = 15, 6, 2
_CHARACTER_DEVICE_TYPE = 2
_MAX_ATTACHED_PROGRAMS = 64
#: Instructions: load a word; and; skip `offset` instructions if unequal; set; exit.
_LOAD_WORD_OPCODE, _AND_OPCODE, _JUMP_UNEQUAL_OPCODE, _SET_REGISTER_OPCODE, _EXIT_OPCODE = (
    0x61,
    0x57,
    0x55,
    0xB7,
    0x95,
)


def device_refusing_program(denied_devices: Iterable[tuple[int, int]]) -> bytes:
    """Return a program that refuses these character devices (major, minor) and allows all others.

    The program finds in the context at r1: the access, whose lower half is the kind of device; the
    major number; the minor number.
    """
    instructions = [
        _encode_instruction(_LOAD_WORD_OPCODE, 2, source_register=1, offset=0),
        _encode_instruction(_AND_OPCODE, 2, immediate=0xFFFF),
        _encode_instruction(_LOAD_WORD_OPCODE, 3, source_register=1, offset=4),
        _encode_instruction(_LOAD_WORD_OPCODE, 4, source_register=1, offset=8),
    ]
    for major, minor in sorted(set(denied_devices)):
        instructions += [
            _encode_instruction(
                _JUMP_UNEQUAL_OPCODE, 2, offset=4, immediate=_CHARACTER_DEVICE_TYPE
            ),
            _encode_instruction(_JUMP_UNEQUAL_OPCODE, 3, offset=3, immediate=major),
            _encode_instruction(_JUMP_UNEQUAL_OPCODE, 4, offset=2, immediate=minor),
            _encode_instruction(_SET_REGISTER_OPCODE, 0, immediate=0),
            _encode_instruction(_EXIT_OPCODE),
        ]
    return b"".join(
        [
            *instructions,
            _encode_instruction(_SET_REGISTER_OPCODE, 0, immediate=1),
            _encode_instruction(_EXIT_OPCODE),
        ]
    )


def confine(cgroup_path: str, denied_devices: Iterable[tuple[int, int]]) -> None:
    """Make processes in this cgroup unable to open these devices, and able to open all others.

    Raises OSError. The new program is attached before the old one is detached, so no device is open
    in between. If this process is killed in between, both programs stay: a device that either
    refuses is refused, and the next call removes the older one.
    """
    cgroup_descriptor = os.open(cgroup_path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        old_ids = _attached_program_ids(cgroup_descriptor)
        new_program_descriptor = _load_program(device_refusing_program(denied_devices))
        try:
            attribute = struct.pack(
                "IIII",
                cgroup_descriptor,
                new_program_descriptor,
                _ATTACH_CGROUP_DEVICE,
                _ALLOW_MULTI,
            )
            _bpf_syscall(_PROG_ATTACH, attribute)
        finally:
            os.close(new_program_descriptor)
        for program_id in old_ids:
            old_program_descriptor = _bpf_syscall(_PROG_GET_FD_BY_ID, struct.pack("I", program_id))
            try:
                _bpf_syscall(
                    _PROG_DETACH,
                    struct.pack(
                        "IIII", cgroup_descriptor, old_program_descriptor, _ATTACH_CGROUP_DEVICE, 0
                    ),
                )
            finally:
                os.close(old_program_descriptor)
    finally:
        os.close(cgroup_descriptor)


def _attached_program_ids(cgroup_descriptor: int) -> list[int]:
    """Return the ids of the programs that are attached to the cgroup itself."""
    program_ids = (ctypes.c_uint32 * _MAX_ATTACHED_PROGRAMS)()
    attribute = ctypes.create_string_buffer(
        struct.pack(
            "IIIIQI",
            cgroup_descriptor,
            _ATTACH_CGROUP_DEVICE,
            0,
            0,
            ctypes.addressof(program_ids),
            _MAX_ATTACHED_PROGRAMS,
        ),
        64,
    )
    _call_bpf(_PROG_QUERY, attribute)
    (program_count,) = struct.unpack_from("I", attribute, 24)
    return list(program_ids[:program_count])


def _load_program(instructions: bytes) -> int:
    program_buffer = ctypes.create_string_buffer(instructions, len(instructions))
    licence_buffer = ctypes.create_string_buffer(b"MIT")
    return _bpf_syscall(
        _PROG_LOAD,
        struct.pack(
            "IIQQ",
            _TYPE_CGROUP_DEVICE,
            len(instructions) // 8,
            ctypes.addressof(program_buffer),
            ctypes.addressof(licence_buffer),
        ),
    )


def _encode_instruction(
    opcode: int,
    target_register: int = 0,
    source_register: int = 0,
    offset: int = 0,
    immediate: int = 0,
) -> bytes:
    return struct.pack("=BBhi", opcode, source_register << 4 | target_register, offset, immediate)


def _bpf_syscall(command: int, attribute: bytes) -> int:
    return _call_bpf(command, ctypes.create_string_buffer(attribute, 128))


def _call_bpf(command: int, attribute: ctypes.Array[ctypes.c_char]) -> int:
    syscall_number = _SYSCALL_NUMBERS.get(platform.machine())
    if syscall_number is None:
        raise OSError(38, f"bpf(2) is not known on {platform.machine()}")
    libc = ctypes.CDLL(None, use_errno=True)
    call_result = int(libc.syscall(syscall_number, command, attribute, len(attribute)))
    if call_result < 0:
        error_number = ctypes.get_errno()
        raise OSError(error_number, os.strerror(error_number))
    return call_result
