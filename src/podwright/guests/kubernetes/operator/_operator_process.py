"""The operator as a process: `podwright kubernetes operator`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple, TypeVar

from podwright.errors import Held, InvalidRequest, NotFound, PodwrightError
from podwright.guests.kubernetes.cluster._kube_api import KubeApi, connect
from podwright.guests.kubernetes.cluster._leader import Leader
from podwright.guests.kubernetes.job._ipu_job import read_job
from podwright.guests.kubernetes.job._reconcile import plan
from podwright.guests.kubernetes.job._sightings import Holds, read_pod
from podwright.guests.kubernetes.operator._operator import Operator
from podwright.guests.kubernetes.operator._operator_metrics import (
    DEAF_S,
    OperatorCounts,
    deaf,
    figures,
)
from podwright.guests.kubernetes.operator._removal import Removal, alone, give_all_back
from podwright.guests.kubernetes.partitions._controllers import VipuController, reach
from podwright.guests.kubernetes.partitions._job_partitions import DevicePlace, Partitions
from podwright.guests.kubernetes.partitions._sites import VipuSite
from podwright.guests.kubernetes.pods._pod_objects import PodOptions
from podwright.http import Figure, MetricsFront

_log = logging.getLogger("podwright.guests.kubernetes")
_RETRY_S = 1.0
_T = TypeVar("_T")
_OPTIONS = PodOptions()


class Serving(NamedTuple):
    """The options of the command.

    listen: the host and port of the probes and of /metrics; None: nowhere.
    """

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
    listen: tuple[str, int] | None = None


async def serve(options: Serving) -> int:
    """Serve until SIGTERM or SIGINT and return 0, or until another operator has the lease and
    return 1.

    Raises PodwrightError where there is no cluster.
    """
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    controllers = {site: reach(site, options.credentials) for site in options.sites}
    try:
        async with (
            connect(options.kubeconfig, options.namespace) as kube,
            _Display(kube, options.listen) as display,
        ):
            work = asyncio.create_task(_serve(options, kube, controllers, display))
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


class _Display:
    """The probes and metrics of this process, served within the block where it is to listen."""

    def __init__(self, kube: KubeApi, listen: tuple[str, int] | None) -> None:
        self.counts, self.acts = OperatorCounts(), False
        self._kube, self._listen = kube, listen
        probes = {
            "/readyz": lambda: deaf(kube.watches, time.monotonic()),
            "/livez": lambda: deaf(kube.watches, time.monotonic(), DEAF_S),
        }
        self._front = MetricsFront(self._figures, probes=probes)

    async def _figures(self) -> Iterable[Figure]:
        kube = self._kube
        return figures(
            self.counts, kube.watches, writes=kube.writes, acts=self.acts, now=time.monotonic()
        )

    async def __aenter__(self) -> _Display:
        if self._listen is not None:
            await self._front.start(*self._listen)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._listen is not None:
            await self._front.stop()


async def _serve(
    options: Serving, kube: KubeApi, controllers: dict[VipuSite, VipuController], display: _Display
) -> int:
    name = options.cluster_name or await _patiently(kube.cluster_uid)
    namespace, _, lease = options.lease.partition("/")
    if not (namespace and lease):
        raise InvalidRequest(
            f"{options.lease!r} does not name a lease", would_work="--lease NAMESPACE/NAME"
        )
    leader = Leader(kube, namespace, lease, options.identity, wall=time.time)
    await leader.acquire()
    _log.info("acts for cluster %s", name)
    async with leader.holding() as term:
        places = [
            place
            for site, controller in controllers.items()
            for place in await _places(options, site, controller)
        ]
        operator = Operator(
            kube,
            Partitions(name, places, time.monotonic),
            wall=time.time,
            clock=time.monotonic,
            options=options.options,
            sweep_s=options.sweep_s,
            counts=display.counts,
        )
        display.acts = True
        works = asyncio.create_task(operator.run())
        try:
            await asyncio.wait({term, works}, return_when=asyncio.FIRST_COMPLETED)
            if works.done():
                await works
            _log.warning("the lease is somebody else's")
            return 1
        finally:
            works.cancel()
            await asyncio.gather(works, return_exceptions=True)


async def remove(options: Serving, progress: Callable[[str], None]) -> int:
    """Give back what jobs hold, and remove their finalizers. Returns the number of jobs.

    Without sites, partitions are left as they are. Raises PodwrightError.
    """
    controllers = {site: reach(site, options.credentials) for site in options.sites}
    try:
        async with connect(options.kubeconfig, options.namespace) as kube:
            name = options.cluster_name or await kube.cluster_uid()
            namespace, _, lease = options.lease.partition("/")
            leader = Leader(kube, namespace, lease, options.identity)
            async with contextlib.AsyncExitStack() as stack:
                stopping = set()
                if await alone(leader):
                    stopping.add(await stack.enter_async_context(leader.holding()))
                places = await _all_places(options, controllers)
                partitions = Partitions(name, places, time.monotonic)
                removal = Removal(kube, partitions, progress, namespace=options.namespace)
                works = asyncio.create_task(removal.run())
                try:
                    await asyncio.wait({works, *stopping}, return_when=asyncio.FIRST_COMPLETED)
                    if not works.done():
                        raise Held(
                            "an operator began to act", operation="podwright kubernetes remove"
                        )
                    return works.result()
                finally:
                    works.cancel()
                    await asyncio.gather(works, return_exceptions=True)
    finally:
        for controller in controllers.values():
            controller.close()


async def remove_for_gone(options: Serving, progress: Callable[[str], None]) -> int:
    """Give back what jobs of a cluster hold that no longer exists. Returns the number of jobs.

    The cluster is identified by `options.cluster_name`. Raises PodwrightError.
    """
    controllers = {site: reach(site, options.credentials) for site in options.sites}
    try:
        places = await _all_places(options, controllers)
        partitions = Partitions(options.cluster_name, places, time.monotonic)
        return await give_all_back(partitions, progress, options.namespace)
    finally:
        for controller in controllers.values():
            controller.close()


async def _all_places(
    options: Serving, controllers: dict[VipuSite, VipuController]
) -> list[DevicePlace]:
    return [
        DevicePlace(site, controller, cluster, options.allocation)
        for site, controller in controllers.items()
        for cluster in (
            [options.vipu_cluster] if options.vipu_cluster else await controller.clusters()
        )
    ]


async def _places(
    options: Serving, site: VipuSite, controller: VipuController
) -> list[DevicePlace]:
    clusters = [options.vipu_cluster]
    while not clusters[0]:
        clusters = await _patiently(controller.clusters) or [""]
        if not clusters[0]:
            _log.warning("V-IPU controller %s has no cluster", site.name)
            await asyncio.sleep(_RETRY_S)
    return [DevicePlace(site, controller, cluster, options.allocation) for cluster in clusters]


async def _patiently(ask: Callable[[], Awaitable[_T]]) -> _T:
    last_problem = ""
    while True:
        try:
            return await ask()
        except PodwrightError as error:
            if str(error) != last_problem:
                _log.warning("%s", error)
            last_problem = str(error)
            await asyncio.sleep(_RETRY_S)


async def planned(kubeconfig: str, namespace: str, name: str) -> list[str]:
    """Return what the operator would do now for a job, as lines, by what the cluster shows of it.

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
    holdings = {
        pod.instance: Holds(instance=pod.instance, name=pod.partition, state="READY")
        for pod in pods
        if pod.partition
    }
    return plan(job, pods, holdings, time.time()).lines()
