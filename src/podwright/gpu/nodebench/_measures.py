"""Measures two nodes, or the GPUs of one node: with torch where it is installed, else with plain
TCP and memory copies.

Each measurement returns a rate in Gb/s. Two nodes meet at a port that the driver chose, and prove
themselves with a token that it made for this job; anybody else who connects gets no answer.
"""

from __future__ import annotations

import contextlib
import hmac
import importlib.util
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

_CHUNK_BYTES = 1 << 20
_TOKEN_BYTES = 32  # bytes
_MEETING_TIMEOUT_S = 60.0  # seconds for the other side to come
_WARM_UP_S = 0.2  # seconds before a rate is counted


class Meeting(NamedTuple):
    """The meeting of two nodes.

    listens: whether this side waits for the other. host: the address of the listening side, as the
    other reaches it. seconds: how long to send in each direction. gpu: the GPU of its own that each
    side uses, if it uses one.
    """

    host: str
    port: int
    token: bytes
    listens: bool
    seconds: float
    gpu: int = 0


def ways() -> list[str]:
    """Return the transports between two nodes that this machine has, best first."""
    return [*(["torch"] if importlib.util.find_spec("torch") else []), "tcp"]


def pair_tcp(meeting: Meeting) -> float:
    """Gb/s of the slower direction; the two directions are measured one after the other. Raises
    OSError."""
    with _meet_peer(meeting) as connection:
        connection.settimeout(_MEETING_TIMEOUT_S)
        if meeting.listens:
            send_rate = _send_chunks(connection, meeting.seconds)
            return min(send_rate, _receive_chunks(connection))
        receive_rate = _receive_chunks(connection)
        return min(receive_rate, _send_chunks(connection, meeting.seconds))


def _meet_peer(meeting: Meeting) -> socket.socket:
    deadline = time.monotonic() + _MEETING_TIMEOUT_S
    if not meeting.listens:
        while True:
            try:
                connection = socket.create_connection((meeting.host, meeting.port), timeout=5)
                connection.sendall(meeting.token)
                return connection
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
    with socket.create_server((meeting.host, meeting.port)) as listener:
        listener.settimeout(_MEETING_TIMEOUT_S)
        while True:
            connection, _ = listener.accept()
            connection.settimeout(5)
            with contextlib.suppress(OSError):
                if hmac.compare_digest(_receive_exactly(connection, _TOKEN_BYTES), meeting.token):
                    return connection
            connection.close()


def _send_chunks(connection: socket.socket, duration_s: float) -> float:
    """Send for that many seconds. Returns what the other side received."""
    chunk = memoryview(bytes(_CHUNK_BYTES))
    deadline = time.monotonic() + duration_s + _WARM_UP_S
    while time.monotonic() < deadline:
        connection.sendall(len(chunk).to_bytes(4))
        connection.sendall(chunk)
    connection.sendall((0).to_bytes(4))
    return float(_receive_exactly(connection, 16).decode())


def _receive_chunks(connection: socket.socket) -> float:
    """Return the Gb/s after the first moment, and report them to the sender too."""
    buffer = bytearray(_CHUNK_BYTES)
    started_at = time.monotonic()
    counted_bytes, counting_since, last_received = 0, 0.0, started_at
    while chunk_size := int.from_bytes(_receive_exactly(connection, 4)):
        if chunk_size > _CHUNK_BYTES:
            raise OSError("the other side speaks something else")
        bytes_left = chunk_size
        while bytes_left:
            received = connection.recv_into(memoryview(buffer)[:bytes_left])
            if not received:
                raise ConnectionResetError("the other side went away")
            bytes_left -= received
            last_received = time.monotonic()
            if counting_since:
                counted_bytes += received
            elif last_received - started_at > _WARM_UP_S:
                counting_since = last_received
    rate = (
        counted_bytes * 8e-9 / (last_received - counting_since)
        if counting_since and last_received > counting_since
        else 0.0
    )
    connection.sendall(f"{rate:16.9f}"[:16].encode())
    return rate


def _receive_exactly(connection: socket.socket, byte_count: int) -> bytes:
    received = b""
    while len(received) < byte_count:
        piece = connection.recv(byte_count - len(received))
        if not piece:
            raise ConnectionResetError("the other side went away")
        received += piece
    return received


def pair_torch(meeting: Meeting) -> float:
    """Gb/s of an all-reduce of two nodes by torch: NCCL with GPUs, else gloo.

    The rate is the bus's, as nccl-tests count it: 2·(n-1)/n of the size, which is the size here.
    """
    import torch
    import torch.distributed as dist

    has_gpu = torch.cuda.is_available()
    if has_gpu:
        torch.cuda.set_device(meeting.gpu)
    dist.init_process_group(
        "nccl" if has_gpu else "gloo",
        init_method=f"tcp://{meeting.host}:{meeting.port}",
        rank=0 if meeting.listens else 1,
        world_size=2,
    )
    try:
        size_bytes = 64 << 20 if has_gpu else 4 << 20
        tensor = torch.ones(size_bytes // 4, device=f"cuda:{meeting.gpu}" if has_gpu else "cpu")
        dist.all_reduce(tensor)
        repeat_count, started_at = 0, time.monotonic()
        continue_flag = torch.ones(1, device=tensor.device)
        while continue_flag.item():
            dist.all_reduce(tensor.fill_(1))
            if has_gpu:
                torch.cuda.synchronize()
            repeat_count += 1
            continue_flag.fill_(float(time.monotonic() - started_at < meeting.seconds))
            dist.broadcast(continue_flag, 0)
        return float(repeat_count * size_bytes * 8e-9 / (time.monotonic() - started_at))
    finally:
        dist.destroy_process_group()


PAIR_MEASURES = {"tcp": pair_tcp, "torch": pair_torch}


def within(gpu_count: int, duration_s: float, environ: Mapping[str, str]) -> dict[str, float]:
    """The rates inside this node in Gb/s, by kind of measurement."""
    rates = {"memory copy": _measure_memory(duration_s)}
    program_path = shutil.which("all_reduce_perf", path=environ.get("PATH"))
    if gpu_count > 1 and program_path:
        rate = _run_nccl_tests([program_path, "-b", "256M", "-e", "256M", "-g", str(gpu_count)])
        rates |= {} if rate is None else {"all-reduce": rate}
    if gpu_count and importlib.util.find_spec("torch"):
        rates |= _measure_gpu_copies(duration_s, measure_all_reduce="all-reduce" not in rates)
    return rates


def _measure_memory(duration_s: float) -> float:
    """Measure copies in the host's memory by one core, which load on the node slows as well."""
    source_buffer, target_buffer = bytearray(32 << 20), bytearray(32 << 20)
    started_at, copy_count = time.monotonic(), 0
    while time.monotonic() - started_at < duration_s / 2 or not copy_count:
        target_buffer[:] = source_buffer
        copy_count += 1
    return copy_count * len(source_buffer) * 8e-9 / (time.monotonic() - started_at)


def _run_nccl_tests(command: list[str]) -> float | None:
    try:
        test_result = subprocess.run(
            command, capture_output=True, text=True, timeout=300, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return read_nccl_tests(test_result.stdout)


def read_nccl_tests(test_output: str) -> float | None:
    """The mean bus bandwidth that nccl-tests print at their end, in Gb/s; None where there is
    none."""
    bandwidth_match = re.search(r"# Avg bus bandwidth\s*:\s*([\d.]+)", test_output)
    return 8 * float(bandwidth_match[1]) if bandwidth_match else None


def _measure_gpu_copies(duration_s: float, *, measure_all_reduce: bool) -> dict[str, float]:
    """Measure copies from host to GPU, back, and between neighbours (the slowest GPU), and an
    all-reduce.
    """
    import torch

    size_bytes = 256 << 20
    host_buffer = torch.empty(size_bytes, dtype=torch.uint8, pin_memory=True)
    gpu_count = torch.cuda.device_count()
    gpu_buffers = [
        torch.empty(size_bytes, dtype=torch.uint8, device=f"cuda:{gpu_index}")
        for gpu_index in range(gpu_count)
    ]

    def rate(target: Any, source: Any) -> float:
        target.copy_(source)
        torch.cuda.synchronize()
        started_at, copy_count = time.monotonic(), 0
        while time.monotonic() - started_at < duration_s / 4:
            target.copy_(source, non_blocking=True)
            torch.cuda.synchronize()
            copy_count += 1
        return copy_count * size_bytes * 8e-9 / (time.monotonic() - started_at)

    rates = {
        "host to GPU": min(rate(gpu_buffer, host_buffer) for gpu_buffer in gpu_buffers),
        "GPU to host": min(rate(host_buffer, gpu_buffer) for gpu_buffer in gpu_buffers),
    }
    if gpu_count > 1:
        rates["GPU to GPU"] = min(
            rate(gpu_buffers[gpu_index], gpu_buffers[gpu_index - 1])
            for gpu_index in range(gpu_count)
        )
        rates |= (
            {"all-reduce": _measure_all_reduce(gpu_buffers, duration_s)}
            if measure_all_reduce
            else {}
        )
    return rates


def _measure_all_reduce(gpu_buffers: Sequence[Any], duration_s: float) -> float:
    """Measure an all-reduce of all GPUs of this node by one process. The rate is the bus's, as in
    nccl-tests.
    """
    import torch

    tensors = [gpu_buffer.view(torch.float32) for gpu_buffer in gpu_buffers]
    torch.cuda.nccl.all_reduce(tensors)
    torch.cuda.synchronize()
    started_at, repeat_count = time.monotonic(), 0
    while time.monotonic() - started_at < duration_s / 2:
        torch.cuda.nccl.all_reduce(tensors)
        for gpu_index in range(len(tensors)):
            torch.cuda.synchronize(gpu_index)
        repeat_count += 1
    bus_factor = 2 * (len(tensors) - 1) / len(tensors)
    size_bytes = tensors[0].numel() * tensors[0].element_size()
    return float(repeat_count * bus_factor * size_bytes * 8e-9 / (time.monotonic() - started_at))


def address(host: str) -> str:
    """Return the address of a host, as other hosts reach it. Raises OSError."""
    return str(socket.getaddrinfo(host, None, socket.AF_INET)[0][4][0])


def own_name(environ: Mapping[str, str]) -> str:
    """Return Slurm's name of this node."""
    return environ.get("SLURMD_NODENAME") or os.uname().nodename.partition(".")[0]
