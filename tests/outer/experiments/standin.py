"""The stand-in for Podwright's server: answers the hook over a Unix socket and writes a journal.

With `--sync` it keeps the block licences honest: before a job's end is acknowledged (and Slurm
therefore still counts its licences) the reservation that hides what is not placeable is updated.
"""

import argparse
import asyncio
import json
import os
import time
from typing import Any

from tests.outer.experiments.het import Heterogeneous
from tests.outer.experiments.pod import Pod


class StandIn:
    def __init__(self, options: argparse.Namespace) -> None:
        self.pod = Pod(options.devices)
        self.patience = options.patience
        self.sync = options.sync
        self.prefix = options.prefix.split()
        self.journal = open(options.journal, "a", buffering=1)  # noqa: SIM115
        self.changed = asyncio.Condition()
        self.wanted = self.done = 0
        self.wake = asyncio.Event()
        self.het = Heterogeneous(self)

    def write(self, event: str, job: int, **more: Any) -> None:
        line = {"at": time.time(), "event": event, "job": job, "held": self.pod.used(), **more}
        self.journal.write(json.dumps(line) + "\n")

    async def begins(self, job: int, devices: int) -> int:
        start = time.monotonic()
        waited = False
        while not self.pod.take(job, devices) and not self.het.give_way(job, devices):
            if not waited:
                self.write("no shape", job, devices=devices)
            waited = True
            left = self.patience - (time.monotonic() - start)
            if left <= 0:
                self.write("refused", job, devices=devices, seconds=self.patience)
                return 409
            async with self.changed:
                try:
                    await asyncio.wait_for(self.changed.wait(), left)
                except TimeoutError:
                    continue
        self.write("begins", job, devices=devices, seconds=time.monotonic() - start)
        return 200

    async def ended(self, job: int) -> int:
        if self.pod.release(job):
            async with self.changed:
                self.changed.notify_all()
            self.het.components.discard(job)
            if self.sync:
                await self.synced()
        self.write("ended", job)
        return 200

    async def synced(self) -> None:
        """Returns when Slurm has been told what is true now, or later."""
        self.wanted += 1
        mine = self.wanted
        self.wake.set()
        async with self.changed:
            await self.changed.wait_for(lambda: self.done >= mine)

    def licences(self, total: int) -> str:
        """What the reservation must hide, so that Slurm sees as free what is placeable.

        Slurm shows total - used - hidden. With hidden = total - used by the jobs that we know -
        placeable, jobs that Slurm has started and we have not heard of stay subtracted.
        """
        orders = range(self.pod.orders)
        known = (self.pod.used(k, but=self.het.components) for k in orders)
        hidden = (total - used - self.pod.whole(k) for k, used in zip(orders, known, strict=True))
        all_ = [f"ipu_x{1 << k}:{count}" for k, count in zip(orders, hidden, strict=True)]
        return ",".join([*all_, "ipu_het_wait:1"])

    async def slurm(self, *argv: str) -> str:
        """What a Slurm command says, on either channel."""
        process = await asyncio.create_subprocess_exec(
            *self.prefix,
            *argv,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await process.communicate()
        return out.decode()

    async def syncer(self) -> None:
        while True:
            await self.wake.wait()
            self.wake.clear()
            upto = self.wanted
            what = f"licenses={self.licences(self.pod.size)}"
            said = await self.slurm("scontrol", "update", "reservationname=podwright", what)
            if "updated" not in said:
                self.write("sync failed", 0, error=said)
                await asyncio.sleep(0.1)
                self.wake.set()
                continue
            self.done = max(self.done, upto)
            async with self.changed:
                self.changed.notify_all()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = int(head.lower().partition("content-length:")[2].split()[0])
        body = json.loads(await reader.readexactly(length))
        job = int(body["job"])
        if head.startswith("POST /slurm.v1/JobBegins"):
            counts = dict(one.split(":") for one in body.get("licences", "").split(",") if one)
            asked = body["ipus"] if "het_job" in body else counts["ipu"]
            status = await self.begins(job, int(asked))
        else:
            status = await self.ended(job)
        writer.write(f"HTTP/1.0 {status} X\r\n\r\n".encode())
        await writer.drain()
        writer.close()


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket", required=True)
    parser.add_argument("--journal", required=True)
    parser.add_argument("--devices", type=int, default=256)
    parser.add_argument("--patience", type=float, default=5.0)
    parser.add_argument("--prefix", default="")
    parser.add_argument("--sync", action="store_true")
    options = parser.parse_args()
    stand_in = StandIn(options)
    keep = [asyncio.create_task(stand_in.syncer())]
    if options.sync:
        keep.append(asyncio.create_task(stand_in.het.run()))
    server = await asyncio.start_unix_server(stand_in.serve, options.socket, backlog=4096)
    os.chmod(options.socket, 0o600)
    async with server:
        await server.serve_forever()
    await asyncio.gather(*keep)


if __name__ == "__main__":
    asyncio.run(main())
