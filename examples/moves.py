"""What `make demo DEMO=moves` runs: a launch makes room for a larger one, and goes on elsewhere.

Two launches train on four devices each, and two partitions of four end beside them: eight devices
are free, and no block of eight. A third launch wants eight and waits. One of the two writes its
checkpoint, ends, and starts again on other devices; all three finish, and the one that moved
reaches what it would have reached.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from demo import BIN, PROGRAM, ROOT, Demo, Failed, check_nothing_left, perform

EPOCHS = "40"


class Training:
    """A launch in the background; what it says is shown as it comes, behind its name."""

    def __init__(self, demo: Demo, name: str) -> None:
        words = [
            *("poprun", "--movable", "--move-seconds=1", "--allow-run-as-root=yes"),
            *("--vipu-partition", name, "--num-replicas=4", "--num-instances=2"),
            *("python3", PROGRAM, "--epochs", EPOCHS, "--pause=1"),
            *("--checkpoint", str(demo.folder / name)),
        ]
        print(f"\n$ {' '.join(words)} &", flush=True)
        self.name, self.lines = name, list[str]()
        self.process = subprocess.Popen(
            [str(BIN / words[0]), *words[1:]],
            cwd=ROOT,
            env=demo.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            print(f"{self.name}: {line}", end="", flush=True)

    def finish(self) -> str:
        """Wait for its end; what it said. Raises Failed."""
        code = self.process.wait(300)
        self._reader.join(10)
        said = "".join(self.lines)
        if code:
            raise Failed(f"launch {self.name} ended with code {code}")
        reached = re.search(r"test accuracy (\d\.\d+)", said)
        if not reached or float(reached[1]) < 0.95:
            raise Failed(f"launch {self.name} did not reach an accuracy of 0.95")
        return said


def show(demo: Demo) -> None:
    """The demo itself. Raises Failed."""
    print("This demo uses a simulated POD16: 16 devices in 4 machines.", flush=True)
    demo.start_server()
    before = set(demo.processes())
    trainings = []
    try:
        for number in "12":
            demo.run("vipu", "create", "partition", f"x{number}", "--size", "4")
            trainings.append(Training(demo, f"p{number}"))
            until(lambda name=f"p{number}": name in demo.ask("vipu", "list", "partitions"))
        until(lambda: json.loads(demo.ask("vipu-admin", "moves", "--json"))["movable"] == 2)
        inside = [
            (row["partitions"] or [""])[0]
            for row in json.loads(demo.ask("vipu-admin", "list", "machines", "--json"))
        ]
        print("\nMachines and what is on them:", ", ".join(inside))
        if {inside[0], inside[1]} in ({"p1", "p2"}, {"x1", "x2"}):
            raise Failed("the devices that come free are a block")
        for name in ("x1", "x2"):
            demo.run("vipu", "remove", "partition", name)
        print("\nEight devices are free, and no block of eight.", flush=True)
        demo.run(
            *("poprun", "--vipu-wait", "--allow-run-as-root=yes", "--num-replicas=8"),
            *("--num-instances=4", "python3", PROGRAM),
        )
        demo.run("vipu-admin", "moves")
        said = [training.finish() for training in trainings]
    finally:
        for training in trainings:
            training.process.terminate()
            training.process.wait(60)
    moved = [text for text in said if "starting again" in text]
    if len(moved) != 1 or "going on behind epoch" not in moved[0]:
        raise Failed(f"{len(moved)} launches moved; it should be one")
    reached = {re.findall(r"loss (\d\.\d+)", text)[-1] for text in said}
    if len(reached) != 1:
        raise Failed(f"the launch that moved ended elsewhere than the other: {reached}")
    print("\nThe launch that moved ended with the same loss as the one that stayed.")
    check_nothing_left(demo, before)


def until(true: Callable[[], bool]) -> None:
    """Wait until something is so. Raises Failed."""
    deadline = time.monotonic() + 120
    while not true():
        if time.monotonic() > deadline:
            raise Failed("the launches do not come so far that they can be moved")
        time.sleep(0.3)


if __name__ == "__main__":
    sys.exit(perform(show))
