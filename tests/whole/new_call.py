"""Run in a copy of the project with one more call: checks its presence on every door, and its
rights.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tools.calls_page import calls_page

import podwright.http._connection
from podwright import wire
from podwright.client import Client, FakeTransport
from podwright.client._failover import FailoverTransport
from podwright.errors import Unavailable
from podwright.hosts import Peer
from podwright.wire import METHODS, EventsRequest
from tests.server.walk import ROOT, USERS, Doors, Who

NAME = "LabelMachine"


def repeated() -> int:
    """Return how often a client asks whose first answer was lost."""
    asked = []

    def handler(name: str, request: wire.Value) -> wire.Value:
        asked.append(name)
        if len(asked) == 1:
            raise Unavailable("the connection broke")
        return METHODS[name].reply(name="ag1", label="said")

    transport = FailoverTransport([lambda timeout: FakeTransport(handler)] * 2, "two")
    Client(transport).call(NAME, METHODS[NAME].request(name="ag1", label="a"))
    return len(asked)


async def main(folder: Path) -> None:
    """Print the observations, a line each."""
    doors = Doors(folder / "s")
    setattr(podwright.http._connection, "peer_of", lambda _: Peer(0, doors.kernel))  # noqa: B010
    await doors.start()
    request = METHODS[NAME].request(name="ag1", label="rack 3")
    for door, role in (("unix", "administrator"), ("key", "administrator"), ("unix", "user")):
        code, reply = await doors.call(Who(door, role, USERS[role]), NAME, request)
        print(door, role, code, getattr(reply, "label", ""))
    events = (await doors.controller.list_events(ROOT, EventsRequest())).events
    print("events", *(event.outcome for event in events if event.what == NAME))
    await doors.stop()
    print("asked again", repeated())
    print(*(line for line in calls_page().splitlines() if NAME in line), sep="\n")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
