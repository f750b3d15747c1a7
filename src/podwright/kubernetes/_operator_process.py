"""The operator as a process: `podwright kubernetes operator`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

from podwright.errors import Held, InvalidRequest, NotFound, PodwrightError
from podwright.kubernetes._controllers import VipuController, reach
from podwright.kubernetes._ipu_job import read_job
from podwright.kubernetes._job_partitions import DevicePlace, Partitions
from podwright.kubernetes._kube_api import KubeApi, connect
from podwright.kubernetes._leader import Leader
from podwright.kubernetes._operator import Operator
from podwright.kubernetes._pod_objects import PodOptions
from podwright.kubernetes._reconcile import plan
from podwright.kubernetes._removal import Removal, alone, give_all_back
from podwright.kubernetes._sightings import Holds, read_pod
from podwright.kubernetes._sites import VipuSite

_log = logging.getLogger("podwright.kubernetes")
_RETRY_S = 1.0
_T = TypeVar("_T")
_OPTIONS = PodOptions()


class Serving(NamedTuple):
    """What the command was told. See its options."""

    sites: tuple[VipuSite, ...]
    kubeconfig: str = ""
    credentials: str = ""
    vipu_cluster: str = ""
    allocation: str = ""
    cluster_name: str = ""
    namespace: str = ""
    lease: str = ""
    identity: str = ""
    options: PodOptions = _OPTIONS
    sweep_s: float = 60.0


async def serve(told: Serving) -> int:
    """Until SIGTERM or SIGINT: 0; or until the lease is somebody else's: 1.

    Raises PodwrightError where there is no cluster.
    """
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    controllers = {site: reach(site, told.credentials) for site in told.sites}
    try:
        async with connect(told.kubeconfig, told.namespace) as kube:
            work = asyncio.create_task(_serve(told, kube, controllers))
            waits = asyncio.create_task(stop.wait())
            await asyncio.wait({work, waits}, return_when=asyncio.FIRST_COMPLETED)
            waits.cancel()
            if not work.done():
                work.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await work
                return 0
            return work.result()
    finally:
        for controller in controllers.values():
            controller.close()


async def _serve(told: Serving, kube: KubeApi, controllers: dict[VipuSite, VipuController]) -> int:
    name = told.cluster_name or await _patiently(kube.cluster_uid)
    namespace, _, lease = told.lease.partition("/")
    if not (namespace and lease):
        raise InvalidRequest(f"{told.lease!r} is no lease", would_work="--lease NAMESPACE/NAME")
    leader = Leader(kube, namespace, lease, told.identity, wall=time.time)
    await leader.acquire()
    _log.info("acts for cluster %s", name)
    async with leader.holding() as holds:
        places = [
            place
            for site, controller in controllers.items()
            for place in await _places(told, site, controller)
        ]
        operator = Operator(
            kube,
            Partitions(name, places, time.monotonic),
            wall=time.time,
            clock=time.monotonic,
            options=told.options,
            sweep_s=told.sweep_s,
        )
        works = asyncio.create_task(operator.run())
        try:
            await asyncio.wait({holds, works}, return_when=asyncio.FIRST_COMPLETED)
            if works.done():
                await works
            _log.warning("the lease is somebody else's")
            return 1
        finally:
            works.cancel()
            await asyncio.gather(works, return_exceptions=True)


async def remove(told: Serving, say: Callable[[str], None]) -> int:
    """Give back what jobs hold, and take the marks away that keep them. Returns how many jobs.

    Without sites partitions are left as they are. Raises PodwrightError.
    """
    controllers = {site: reach(site, told.credentials) for site in told.sites}
    try:
        async with connect(told.kubeconfig, told.namespace) as kube:
            name = told.cluster_name or await kube.cluster_uid()
            namespace, _, lease = told.lease.partition("/")
            leader = Leader(kube, namespace, lease, told.identity)
            async with contextlib.AsyncExitStack() as stack:
                ends = set()
                if await alone(leader):
                    ends.add(await stack.enter_async_context(leader.holding()))
                places = await _all_places(told, controllers)
                partitions = Partitions(name, places, time.monotonic)
                removal = Removal(kube, partitions, say, namespace=told.namespace)
                works = asyncio.create_task(removal.run())
                try:
                    await asyncio.wait({works, *ends}, return_when=asyncio.FIRST_COMPLETED)
                    if not works.done():
                        raise Held("an operator began to act", asked="podwright kubernetes remove")
                    return works.result()
                finally:
                    works.cancel()
                    await asyncio.gather(works, return_exceptions=True)
    finally:
        for controller in controllers.values():
            controller.close()


async def remove_for_gone(told: Serving, say: Callable[[str], None]) -> int:
    """Give back what jobs hold of a cluster that is no more, by its name; how many jobs that were.

    Raises PodwrightError.
    """
    controllers = {site: reach(site, told.credentials) for site in told.sites}
    try:
        places = await _all_places(told, controllers)
        partitions = Partitions(told.cluster_name, places, time.monotonic)
        return await give_all_back(partitions, say, told.namespace)
    finally:
        for controller in controllers.values():
            controller.close()


async def _all_places(
    told: Serving, controllers: dict[VipuSite, VipuController]
) -> list[DevicePlace]:
    return [
        DevicePlace(site, controller, cluster, told.allocation)
        for site, controller in controllers.items()
        for cluster in ([told.vipu_cluster] if told.vipu_cluster else await controller.clusters())
    ]


async def _places(told: Serving, site: VipuSite, controller: VipuController) -> list[DevicePlace]:
    clusters = [told.vipu_cluster]
    while not clusters[0]:
        clusters = await _patiently(controller.clusters) or [""]
        if not clusters[0]:
            _log.warning("V-IPU controller %s has no cluster", site.name)
            await asyncio.sleep(_RETRY_S)
    return [DevicePlace(site, controller, cluster, told.allocation) for cluster in clusters]


async def _patiently(ask: Callable[[], Awaitable[_T]]) -> _T:
    said = ""
    while True:
        try:
            return await ask()
        except PodwrightError as error:
            if str(error) != said:
                _log.warning("%s", error)
            said = str(error)
            await asyncio.sleep(_RETRY_S)


async def planned(kubeconfig: str, namespace: str, name: str) -> list[str]:
    """What the operator would do now for a job, as lines, by what the cluster says of it.

    Raises PodwrightError.
    """
    async with connect(kubeconfig) as kube:
        item = await kube.job(namespace, name)
        if item is None:
            raise NotFound(
                f"there is no IPUJob {namespace}/{name}", would_work="kubectl get ipujobs -A"
            )
        job = read_job(item)
        pods = [read_pod(pod) for pod in await kube.pods(namespace, job.key.uid)]
    held = {
        pod.instance: Holds(instance=pod.instance, name=pod.partition, state="READY")
        for pod in pods
        if pod.partition
    }
    return plan(job, pods, held, time.time()).lines()
