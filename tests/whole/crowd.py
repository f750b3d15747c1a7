"""`python -m tests.whole.crowd PORT CLIENTS CALLS`: so many real clients of a server at once.

Each has a connection of its own, and makes so many calls. Prints a JSON object: how many clients
ended how.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter

from podwright.client import Address, Client, _grpc_transport
from podwright.client._connect_tcp import connect_tcp
from podwright.errors import PodwrightError
from podwright.wire import PartitionSpec

#: Seconds within which a client must be served.
PATIENCE_S = 120.0


def main() -> None:
    """Let the clients go."""
    port, clients, calls = (int(word) for word in sys.argv[1:])
    options = (*_grpc_transport._OPTIONS, ("grpc.use_local_subchannel_pool", 1))
    _grpc_transport._OPTIONS = options  # type: ignore[assignment]
    threading.stack_size(512 << 10)
    outcomes: Counter[str] = Counter()
    lock = threading.Lock()

    def call_server(number: int) -> None:
        try:
            transport, _ = connect_tcp(Address("127.0.0.1", port), PATIENCE_S)
            with Client(transport, timeout=PATIENCE_S) as client:
                for _ in range(calls):
                    client.list_partitions()
                if number == 0:  # a client that changes something, among those that read
                    name = f"p{threading.get_native_id()}"
                    client.create_partition(PartitionSpec(name=name, size=1))
                    client.remove_partition(name)
            outcome = "served"
        except PodwrightError as error:
            outcome = error.message
        with lock:
            outcomes[outcome] += 1

    threads = [threading.Thread(target=call_server, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main()
