"""The check that a server and an agent understand each other, by two protocol numbers.

An agent reports its own protocol and the oldest server protocol that it obeys, in the reply to the
server's first request. A server that finds the two incompatible reports that and sends no change to
the machine. So partitions and running programs there stay as they are until one of the two has been
upgraded. Builds before protocol 1 report nothing, which reads as 0.
"""

from __future__ import annotations

from typing import Final

from podwright.errors import WrongState

#: The protocol of this build. Raise it with every change of a call's meaning.
PROTOCOL_VERSION: Final = 1
#: The lowest protocol of a peer that this build works with.
OLDEST_PEER: Final = 0


def check_agent(machine: str, protocol: int, oldest_peer: int) -> None:
    """Raise wire.WrongState for an agent that this server cannot work with.

    protocol, oldest_peer: as the agent reports them. `data["incompatible"]` of the error is true.
    """
    if oldest_peer > PROTOCOL_VERSION:
        newer_side, older_side, upgrade_advice = "its agent", "this server", "upgrade vipu-server"
    elif protocol < OLDEST_PEER:
        newer_side, older_side, upgrade_advice = (
            "this server",
            "its agent",
            f"upgrade vipu-agent on {machine}",
        )
    else:
        return
    raise WrongState(
        f"{newer_side} is too new for {older_side} (protocols {max(protocol, PROTOCOL_VERSION)} "
        "and "
        f"{min(protocol, PROTOCOL_VERSION)})",
        operation=f"machine {machine}",
        would_work=f"{upgrade_advice}; until then nothing there is changed",
        machine=machine,
        incompatible=True,
    )
