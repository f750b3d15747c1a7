"""A type's first use by two threads at once, which msgspec by itself does not survive."""

from __future__ import annotations

import subprocess
import sys

#: While one thread works out what a nested type is, another decodes the outer one.
PROGRAM = """
import threading, time
import msgspec
from podwright.wire import prepared

begun = threading.Event()

def slow():
    begun.set()
    time.sleep(0.5)
    return int

class Inner(msgspec.Struct):
    value: "slow()"

class Outer(msgspec.Struct):
    inner: Inner
    name: str

def decode():
    found = msgspec.json.decode(b'{"inner": {"value": 1}, "name": "x"}', type=prepared(Outer))
    assert found == Outer(Inner(1), "x")

first = threading.Thread(target=decode)
first.start()
begun.wait()
decode()
first.join()
print("whole")
"""


def test_two_threads_decode_a_type_for_the_first_time() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "whole\n"), done
