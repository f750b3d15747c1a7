"""Passes connections of an inherited socket to an address in its own network.

`python _forward.py FD HOST PORT`: the socket listens in one network namespace, and this process
runs in another.
"""

import asyncio
import contextlib
import socket
import sys


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()


async def _main(listening: socket.socket, host: str, port: int) -> None:
    async def hand_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            far_reader, far_writer = await asyncio.open_connection(host, port)
            try:
                await asyncio.gather(_pipe(reader, far_writer), _pipe(far_reader, writer))
            finally:
                far_writer.close()
        writer.close()

    server = await asyncio.start_server(hand_on, sock=listening)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_main(socket.socket(fileno=int(sys.argv[1])), sys.argv[2], int(sys.argv[3])))
