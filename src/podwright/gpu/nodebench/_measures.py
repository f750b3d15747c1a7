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

_CHUNK = 1 << 20
_TOKEN = 32  # bytes
_MEET = 60.0  # seconds for the other side to come
_WARM = 0.2  # seconds before a rate is counted


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
    with _met(meeting) as link:
        link.settimeout(_MEET)
        if meeting.listens:
            sent = _send(link, meeting.seconds)
            return min(sent, _receive(link))
        got = _receive(link)
        return min(got, _send(link, meeting.seconds))


def _met(meeting: Meeting) -> socket.socket:
    deadline = time.monotonic() + _MEET
    if not meeting.listens:
        while True:
            try:
                link = socket.create_connection((meeting.host, meeting.port), timeout=5)
                link.sendall(meeting.token)
                return link
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
    with socket.create_server((meeting.host, meeting.port)) as server:
        server.settimeout(_MEET)
        while True:
            link, _ = server.accept()
            link.settimeout(5)
            with contextlib.suppress(OSError):
                if hmac.compare_digest(_exactly(link, _TOKEN), meeting.token):
                    return link
            link.close()


def _send(link: socket.socket, seconds: float) -> float:
    """Send for that many seconds. Returns what the other side received."""
    data = memoryview(bytes(_CHUNK))
    until = time.monotonic() + seconds + _WARM
    while time.monotonic() < until:
        link.sendall(len(data).to_bytes(4))
        link.sendall(data)
    link.sendall((0).to_bytes(4))
    return float(_exactly(link, 16).decode())


def _receive(link: socket.socket) -> float:
    """Return the Gb/s after the first moment, and report them to the sender too."""
    buffer = bytearray(_CHUNK)
    start = time.monotonic()
    counted, since, last = 0, 0.0, start
    while size := int.from_bytes(_exactly(link, 4)):
        if size > _CHUNK:
            raise OSError("the other side speaks something else")
        left = size
        while left:
            got = link.recv_into(memoryview(buffer)[:left])
            if not got:
                raise ConnectionResetError("the other side went away")
            left -= got
            last = time.monotonic()
            if since:
                counted += got
            elif last - start > _WARM:
                since = last
    rate = counted * 8e-9 / (last - since) if since and last > since else 0.0
    link.sendall(f"{rate:16.9f}"[:16].encode())
    return rate


def _exactly(link: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = link.recv(count - len(data))
        if not part:
            raise ConnectionResetError("the other side went away")
        data += part
    return data


def pair_torch(meeting: Meeting) -> float:
    """Gb/s of an all-reduce of two nodes by torch: NCCL with GPUs, else gloo.

    The rate is the bus's, as nccl-tests count it: 2·(n-1)/n of the size, which is the size here.
    """
    import torch
    import torch.distributed as dist

    gpu = torch.cuda.is_available()
    if gpu:
        torch.cuda.set_device(meeting.gpu)
    dist.init_process_group(
        "nccl" if gpu else "gloo",
        init_method=f"tcp://{meeting.host}:{meeting.port}",
        rank=0 if meeting.listens else 1,
        world_size=2,
    )
    try:
        size = 64 << 20 if gpu else 4 << 20
        data = torch.ones(size // 4, device=f"cuda:{meeting.gpu}" if gpu else "cpu")
        dist.all_reduce(data)
        count, start = 0, time.monotonic()
        flag = torch.ones(1, device=data.device)
        while flag.item():
            dist.all_reduce(data.fill_(1))
            if gpu:
                torch.cuda.synchronize()
            count += 1
            flag.fill_(float(time.monotonic() - start < meeting.seconds))
            dist.broadcast(flag, 0)
        return float(count * size * 8e-9 / (time.monotonic() - start))
    finally:
        dist.destroy_process_group()


PAIRS = {"tcp": pair_tcp, "torch": pair_torch}


def within(gpus: int, seconds: float, environ: Mapping[str, str]) -> dict[str, float]:
    """The rates inside this node in Gb/s, by kind of measurement."""
    rates = {"memory copy": _measure_memory(seconds)}
    program = shutil.which("all_reduce_perf", path=environ.get("PATH"))
    if gpus > 1 and program:
        rate = _nccl_tests([program, "-b", "256M", "-e", "256M", "-g", str(gpus)])
        rates |= {} if rate is None else {"all-reduce": rate}
    if gpus and importlib.util.find_spec("torch"):
        rates |= _torch_within(seconds, all_reduce="all-reduce" not in rates)
    return rates


def _measure_memory(duration_s: float) -> float:
    """Measure copies in the host's memory by one core, which load on the node slows as well."""
    source, target = bytearray(32 << 20), bytearray(32 << 20)
    start, count = time.monotonic(), 0
    while time.monotonic() - start < duration_s / 2 or not count:
        target[:] = source
        count += 1
    return count * len(source) * 8e-9 / (time.monotonic() - start)


def _nccl_tests(words: list[str]) -> float | None:
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return read_nccl_tests(done.stdout)


def read_nccl_tests(text: str) -> float | None:
    """The mean bus bandwidth that nccl-tests print at their end, in Gb/s; None where there is
    none."""
    match = re.search(r"# Avg bus bandwidth\s*:\s*([\d.]+)", text)
    return 8 * float(match[1]) if match else None


def _torch_within(seconds: float, *, all_reduce: bool) -> dict[str, float]:
    """Measure copies from host to GPU, back, and between neighbours (the slowest GPU), and an
    all-reduce.
    """
    import torch

    size = 256 << 20
    host = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    count = torch.cuda.device_count()
    buffers = [torch.empty(size, dtype=torch.uint8, device=f"cuda:{n}") for n in range(count)]

    def rate(target: Any, source: Any) -> float:
        target.copy_(source)
        torch.cuda.synchronize()
        start, times = time.monotonic(), 0
        while time.monotonic() - start < seconds / 4:
            target.copy_(source, non_blocking=True)
            torch.cuda.synchronize()
            times += 1
        return times * size * 8e-9 / (time.monotonic() - start)

    rates = {
        "host to GPU": min(rate(gpu, host) for gpu in buffers),
        "GPU to host": min(rate(host, gpu) for gpu in buffers),
    }
    if count > 1:
        rates["GPU to GPU"] = min(rate(buffers[n], buffers[n - 1]) for n in range(count))
        rates |= {"all-reduce": _all_reduce(buffers, seconds)} if all_reduce else {}
    return rates


def _all_reduce(on: Sequence[Any], seconds: float) -> float:
    """Measure an all-reduce of all GPUs of this node by one process. The rate is the bus's, as in
    nccl-tests.
    """
    import torch

    data = [gpu.view(torch.float32) for gpu in on]
    torch.cuda.nccl.all_reduce(data)
    torch.cuda.synchronize()
    start, times = time.monotonic(), 0
    while time.monotonic() - start < seconds / 2:
        torch.cuda.nccl.all_reduce(data)
        for n in range(len(data)):
            torch.cuda.synchronize(n)
        times += 1
    share = 2 * (len(data) - 1) / len(data)
    size = data[0].numel() * data[0].element_size()
    return float(times * share * size * 8e-9 / (time.monotonic() - start))


def address(host: str) -> str:
    """Return the address of a host, as other hosts reach it. Raises OSError."""
    return str(socket.getaddrinfo(host, None, socket.AF_INET)[0][4][0])


def own_name(environ: Mapping[str, str]) -> str:
    """Return Slurm's name of this node."""
    return environ.get("SLURMD_NODENAME") or os.uname().nodename.partition(".")[0]
