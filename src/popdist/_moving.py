"""Moving to other devices: the server asks, `poprun --movable` passes it on, the program agrees.

A launch can be moved once all its instances have called `onMove`. When they are asked to move, each
instance writes the state that it needs to go on, and ends with the exit code MOVED. poprun then
starts all of them again on other devices, with `PODWRIGHT_RESTART` increased by one. This is ours,
not PopDist's.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

from popdist._backend import MOVED as MOVED
from popdist._collectives import allReduceSum
from popdist._environment import read_number
from popdist._errors import BadUse

_MOVE_SIGNAL_VARIABLE = "PODWRIGHT_MOVE_SIGNAL"

_move_asked = threading.Event()


def onMove(callback: Callable[[], object] | None = None) -> bool:
    """Let this instance be asked to move from now on. Return whether poprun would ever ask.

    callback: called in the main thread, between two lines of the program, when the instance is
    asked. It may write a checkpoint and call `sys.exit(popdist.MOVED)`. Where instances work in
    step, leave it out, and call `mustMove` once a step.

    Raises BadUse outside the main thread, and BadEnvironment.

    >>> popdist.onMove()  # without poprun --movable
    False
    """
    signal_number = read_number(_MOVE_SIGNAL_VARIABLE, 0, least=0, most=int(signal.SIGRTMAX))
    if not signal_number:
        return False
    if threading.current_thread() is not threading.main_thread():
        raise BadUse("onMove: call it in the main thread, where Python handles signals")

    def asked(*_: object) -> None:
        _move_asked.set()
        if callback is not None:
            callback()

    signal.signal(signal_number, asked)
    signal.siginterrupt(signal_number, False)  # system calls that wait for a network are restarted
    return True


def mustMove() -> bool:
    """Return whether the instances must end now in order to move.

    It is a collective: all instances must call it, and all get the same answer. If it is true, each
    instance writes the state that it needs and calls `sys.exit(popdist.MOVED)`. A call costs a sum
    of one number. Raises NotInitialized.

    >>> popdist.mustMove()
    False
    """
    return bool(allReduceSum(int(_move_asked.is_set())) > 0)
