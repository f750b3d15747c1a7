"""Users of one pod: jobs of Slurm, IPUJobs of an operator, people who call the server's queue.

Slurm, vipu-server and the operator are real. The operator's cluster is in memory: pods run as long
as the test lets them, and `tests/kubernetes` has the operator on a real cluster.
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from contextlib import closing
from types import TracebackType
from typing import Any, Self

from podwright.client import Client
from podwright.guests.kubernetes import (
    DevicePlace,
    FakeKube,
    Operator,
    Partitions,
    VipuController,
    VipuSite,
    reach,
)
from podwright.wire import (
    CreateRequest,
    PartitionSpec,
    RemoveRequest,
    WaitReply,
    WaitRequest,
)
from tests.outer.slurm.native import NativeLab

ROOM_S = 5
SMALL, LARGE, STREAM = 4, 16, 200
#: Seconds that small jobs run. They differ, so that no block of LARGE is ever free by itself.
SECONDS = (6.0, 7.1, 8.3, 9.2)


class User(ABC):
    """Somebody who has jobs on the lab's pod."""

    def __init__(self, lab: NativeLab) -> None:
        self.lab = lab

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    @abstractmethod
    def stream(self) -> None:
        """Submit STREAM small jobs."""

    @abstractmethod
    def large(self) -> str:
        """Submit the large job. Returns the name of its partition."""

    @abstractmethod
    def waiting(self) -> int:
        """The number of small jobs that wait."""

    def urgent(self) -> None:
        """Submit a small job of higher priority than all others of this user."""
        raise NotImplementedError


class SlurmUser(User):
    """Jobs by sbatch."""

    def stream(self) -> None:
        seconds = " ".join(map(str, SECONDS))
        script = f"#!/bin/bash\ns=({seconds}); sleep ${{s[SLURM_ARRAY_TASK_ID % {len(SECONDS)}]}}"
        options = (f"--array=1-{STREAM}", f"--ipus={SMALL}", "-t1", "-o", "/dev/null")
        self._array = self.lab.batch(script, *options)

    def large(self) -> str:
        options = (f"--ipus={LARGE}", "--nice=5000", "-t1", "-o", "/dev/null")
        return f"slurm_{self.lab.batch('sleep 2', *options)}"

    def urgent(self) -> None:
        self.lab.batch("sleep 7", f"--ipus={SMALL}", "-t1", "-o", "/dev/null")

    def waiting(self) -> int:
        array = str(self._array)
        return sum(
            job.state == "PENDING" and job.fields.get("ArrayJobId") == array
            for job in self.lab.jobs().values()
        )


class PeopleUser(User):
    """Callers of the server's own queue, each in a thread."""

    def __enter__(self) -> Self:
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._waiting = 0
        self._count = threading.Lock()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def stream(self) -> None:
        # Each thread is somebody who wants partitions one after the other.
        for number in range(24):
            self._begin(f"small-{number}", SMALL, SECONDS[number % 4], STREAM)

    def large(self) -> str:
        self._begin("large", LARGE, 2.0, 1)
        return "large-0"

    def waiting(self) -> int:
        return self._waiting

    def _begin(self, name: str, size: int, seconds: float, times: int) -> None:
        thread = threading.Thread(target=self._want, args=(name, size, seconds, times))
        self._threads.append(thread)
        thread.start()

    def _want(self, name: str, size: int, seconds: float, times: int) -> None:
        with closing(self.lab.client()) as client:
            self._want_all(client, name, size, seconds, times)

    def _want_all(self, client: Client, name: str, size: int, seconds: float, times: int) -> None:
        for number in range(times):
            spec = PartitionSpec(name=f"{name}-{number}", size=size)
            request = WaitRequest(create=CreateRequest(spec=spec), timeout=5.0)
            with self._count:
                self._waiting += 1
            reply = self._ask(client, request)
            while reply.partition is None and not self._over.is_set():
                reply = self._ask(client, WaitRequest(id=reply.waiter.id, timeout=5.0))
            with self._count:
                self._waiting -= 1
            if reply.partition is not None:
                self._over.wait(seconds)
                client.call("RemovePartition", RemoveRequest(name=spec.name))
            if self._over.is_set():
                return

    @staticmethod
    def _ask(client: Client, request: WaitRequest) -> WaitReply:
        reply = client.call("Wait", request)
        assert isinstance(reply, WaitReply)
        return reply


class KubernetesUser(User):
    """IPUJobs of an operator, whose pods run as long as the test says."""

    def __enter__(self) -> Self:
        self._kube = FakeKube()
        self._kube.priority("urgent", 1000)
        self._urgent = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._work(),))
        self._seconds: dict[str, float] = {}
        self._over, self._killed = threading.Event(), threading.Event()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._loop.close()

    async def _work(self) -> None:
        ends: dict[str, float] = {}
        while not self._over.is_set():
            self._killed.clear()
            server = reach(VipuSite("vipu", socket=str(self.lab.server_socket)))
            running = asyncio.create_task(self._operator(server).run())
            while not (self._over.is_set() or self._killed.is_set()):
                assert not running.done(), running
                self._run_pods(ends)
                await asyncio.sleep(0.1)
            running.cancel()
            await asyncio.wait([running])
            server.close()

    def _operator(self, server: VipuController) -> Operator:
        place = DevicePlace(VipuSite("vipu", 8090), server, self.lab.preset)
        return Operator(
            self._kube,
            Partitions("lab", [place], time.monotonic, retry_s=0.2),
            wall=time.time,
            clock=time.monotonic,
            refresh_s=0.5,
            sweep_s=2.0,
            room_s=ROOM_S,
        )

    def _run_pods(self, ends: dict[str, float]) -> None:
        """Start the pods that wait, and end those whose time is over."""
        for name in self._kube.names():
            pod = self._kube.objects["Pod", "team", name]
            job = name.removesuffix("-worker-0")
            if pod["status"]["phase"] == "Pending":
                self._kube.run(name)
                ends[name] = time.monotonic() + self._seconds[job]
            elif pod["status"]["phase"] == "Running" and time.monotonic() > ends[name]:
                self._kube.end(name)

    def kill(self) -> None:
        """End the operator at any await, and start another."""
        self._killed.set()

    def stream(self) -> None:
        for number in range(STREAM):
            self.create(f"small-{number}", SMALL, SECONDS[number % 4])

    def large(self) -> str:
        self.create("large", LARGE, 2.0)
        return "p-large-team-0-"

    def urgent(self) -> None:
        self._urgent += 1
        self.create(f"urgent-{self._urgent}", SMALL, 7.0, priority="urgent")

    def waiting(self) -> int:
        return sum(
            (item.get("status") or {}).get("launcherStatus") == "Pending" for item in self.jobs()
        )

    def jobs(self) -> list[dict[str, Any]]:
        """The IPUJobs."""
        return [item for key, item in list(self._kube.objects.items()) if key[0] == "IPUJob"]

    def create(self, name: str, size: int, seconds: float, priority: str = "") -> None:
        self._seconds[name] = seconds
        pod: dict[str, Any] = {"containers": [{"name": "main", "image": "busybox"}]}
        template = {"spec": pod | ({"priorityClassName": priority} if priority else {})}
        spec: dict[str, Any] = {
            "ipusPerJobInstance": str(size),
            "jobInstances": 1,
            "workers": {"template": template},
        }
        self._loop.call_soon_threadsafe(self._kube.create, spec, name)
