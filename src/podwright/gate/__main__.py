"""`python -m podwright.gate SETUP`: runs a gate. Only a server starts it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys

import msgspec
import uvloop

from podwright.gate._gate_process import Setup, limit
from podwright.gate._gate_server_link import to_server
from podwright.gate._grpc_server import Gate


async def _serve_gate(setup: Setup) -> None:
    listener = socket.socket(fileno=setup.listener)
    link = await to_server(socket.socket(fileno=setup.link))
    gate = Gate(listener, link, setup)
    await gate.start()
    await gate.wait_until_stopped()


def main() -> None:
    """Serve until the server asks for the end, or has gone."""
    setup = msgspec.json.decode(sys.argv[1], type=Setup)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    setup = limit(setup)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve_gate(setup))
    os._exit(0)  # the gate keeps nothing that an orderly end would save


if __name__ == "__main__":
    main()
