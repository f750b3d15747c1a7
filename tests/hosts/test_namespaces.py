"""How a host can contain processes is detected correctly, wherever it is asked."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import grpc

from podwright.hosts import can_hold


def test_it_is_found_beside_the_threads_of_grpc() -> None:
    """gRPC's threads start anew in every forked child, and a process with threads can make no
    namespace.
    """
    alone = can_hold()
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        grpc.channel_ready_future(channel).result(timeout=120)
        assert can_hold() == alone
    server.stop(None)
