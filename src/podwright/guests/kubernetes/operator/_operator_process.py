"""The operator as a process: `podwright kubernetes operator`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from podwright.errors import Held, InvalidRequest, NotFound
from podwright.guests.kubernetes.cluster._kube_api import KubeApi, connect
from podwright.guests.kubernetes.cluster._leader import Leader
from podwright.guests.kubernetes.job._ipu_job import read_job
from podwright.guests.kubernetes.job._observed_pods import Holds, read_pod
from podwright.guests.kubernetes.job._reconcile import plan
from podwright.guests.kubernetes.operator._operator import Operator
from podwright.guests.kubernetes.operator._operator_metrics import (
    FAILING_DEAF_SECONDS,
    OperatorCounts,
    deaf,
    figures,
)
from podwright.guests.kubernetes.operator._operator_removal import Removal, alone, give_all_back
from podwright.guests.kubernetes.partitions._job_partitions import DevicePlace, Partitions
from podwright.guests.kubernetes.partitions._vipu_controller_client import VipuController, reach
from podwright.guests.kubernetes.partitions._vipu_controller_list import VipuSite
from podwright.guests.kubernetes.pods._pod_objects import PodOptions
from podwright.guests.shared import until_done
from podwright.http import Figure, MetricsFront

_log = logging.getLogger("podwright.guests.kubernetes")
_RETRY_S = 1.0
_POD_OPTIONS = PodOptions()


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
    options: PodOptions = _POD_OPTIONS
    room_s: float = 60.0
    sweep_s: float = 60.0
    listen: tuple[str, int] | None = None


async def serve(operator_options: Serving) -> int:
    """Serve until SIGTERM or SIGINT and return 0, or until another operator has the lease and
    return 1.

    Raises PodwrightError where there is no cluster.
    """
    stop_event = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop_event.set)
    controller_by_site = {
        vipu_site: reach(vipu_site, operator_options.credentials)
        for vipu_site in operator_options.sites
    }
    try:
        async with (
            connect(operator_options.kubeconfig, operator_options.namespace) as kube,
            _ProbesAndMetrics(kube, operator_options.listen) as probes_and_metrics,
        ):
            serve_task = asyncio.create_task(
                _serve_cluster(operator_options, kube, controller_by_site, probes_and_metrics)
            )
            stop_task = asyncio.create_task(stop_event.wait())
            await asyncio.wait({serve_task, stop_task}, return_when=asyncio.FIRST_COMPLETED)
            stop_task.cancel()
            if not serve_task.done():
                serve_task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await serve_task
                return 0
            return serve_task.result()
    finally:
        for controller in controller_by_site.values():
            controller.close()


class _ProbesAndMetrics:
    """The probes and metrics of this process, served within the block where it is to listen."""

    def __init__(self, kube: KubeApi, listen_address: tuple[str, int] | None) -> None:
        self.counts, self.acts = OperatorCounts(), False
        self._kube, self._listen = kube, listen_address
        probes = {
            "/readyz": lambda: deaf(kube.watches, time.monotonic()) or kube.problem,
            "/livez": lambda: deaf(kube.watches, time.monotonic(), FAILING_DEAF_SECONDS),
        }
        self._front = MetricsFront(self._figures, probes=probes)

    async def _figures(self) -> Iterable[Figure]:
        kube = self._kube
        return figures(
            self.counts, kube.watches, writes=kube.writes, acts=self.acts, now=time.monotonic()
        )

    async def __aenter__(self) -> _ProbesAndMetrics:
        if self._listen is not None:
            await self._front.open(*self._listen)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._listen is not None:
            await self._front.stop()


async def _serve_cluster(
    operator_options: Serving,
    kube: KubeApi,
    controller_by_site: dict[VipuSite, VipuController],
    probes_and_metrics: _ProbesAndMetrics,
) -> int:
    cluster_name = operator_options.cluster_name or await until_done(
        kube.cluster_uid, _RETRY_S, _log.warning
    )
    lease_namespace, _, lease_name = operator_options.lease.partition("/")
    if not (lease_namespace and lease_name):
        raise InvalidRequest(
            f"{operator_options.lease!r} does not name a lease", would_work="--lease NAMESPACE/NAME"
        )
    leader = Leader(
        kube, lease_namespace, lease_name, operator_options.identity, wall_clock=time.time
    )
    await leader.acquire()
    _log.info("acts for cluster %s", cluster_name)
    async with leader.holding() as lease_term:
        operator = Operator(
            kube,
            Partitions(cluster_name, (), time.monotonic),
            more_places={
                vipu_site.name: partial(_places_of_site, operator_options, vipu_site, controller)
                for vipu_site, controller in controller_by_site.items()
            },
            wall=time.time,
            clock=time.monotonic,
            pod_options=operator_options.options,
            sweep_s=operator_options.sweep_s,
            room_s=operator_options.room_s,
            counts=probes_and_metrics.counts,
        )
        probes_and_metrics.acts = True
        operator_task = asyncio.create_task(operator.run())
        try:
            await asyncio.wait({lease_term, operator_task}, return_when=asyncio.FIRST_COMPLETED)
            if operator_task.done():
                await operator_task
            _log.warning("%s", leader.lost)
            return 1
        finally:
            operator_task.cancel()
            await asyncio.gather(operator_task, return_exceptions=True)


async def remove(operator_options: Serving, report_progress: Callable[[str], None]) -> int:
    """Give back what jobs hold, and remove their finalizers. Returns the number of jobs.

    Without sites, partitions are left as they are. Raises PodwrightError.
    """
    controller_by_site = {
        vipu_site: reach(vipu_site, operator_options.credentials)
        for vipu_site in operator_options.sites
    }
    try:
        async with connect(operator_options.kubeconfig, operator_options.namespace) as kube:
            cluster_name = operator_options.cluster_name or await kube.cluster_uid()
            lease_namespace, _, lease_name = operator_options.lease.partition("/")
            leader = Leader(kube, lease_namespace, lease_name, operator_options.identity)
            async with contextlib.AsyncExitStack() as exit_stack:
                lease_terms = set()
                if await alone(leader):
                    lease_terms.add(await exit_stack.enter_async_context(leader.holding()))
                device_places = await _device_places(operator_options, controller_by_site)
                partitions = Partitions(cluster_name, device_places, time.monotonic)
                removal = Removal(
                    kube, partitions, report_progress, namespace=operator_options.namespace
                )
                removal_task = asyncio.create_task(removal.run())
                try:
                    await asyncio.wait(
                        {removal_task, *lease_terms}, return_when=asyncio.FIRST_COMPLETED
                    )
                    if not removal_task.done():
                        raise Held(
                            "an operator began to act", operation="podwright kubernetes remove"
                        )
                    return removal_task.result()
                finally:
                    removal_task.cancel()
                    await asyncio.gather(removal_task, return_exceptions=True)
    finally:
        for controller in controller_by_site.values():
            controller.close()


async def remove_for_gone(operator_options: Serving, report_progress: Callable[[str], None]) -> int:
    """Give back what jobs of a cluster hold that no longer exists. Returns the number of jobs.

    The cluster is identified by `operator_options.cluster_name`. Raises PodwrightError.
    """
    controller_by_site = {
        vipu_site: reach(vipu_site, operator_options.credentials)
        for vipu_site in operator_options.sites
    }
    try:
        device_places = await _device_places(operator_options, controller_by_site)
        partitions = Partitions(operator_options.cluster_name, device_places, time.monotonic)
        return await give_all_back(partitions, report_progress, operator_options.namespace)
    finally:
        for controller in controller_by_site.values():
            controller.close()


async def _device_places(
    operator_options: Serving, controller_by_site: dict[VipuSite, VipuController]
) -> list[DevicePlace]:
    return [
        DevicePlace(vipu_site, controller, cluster, operator_options.allocation)
        for vipu_site, controller in controller_by_site.items()
        for cluster in (
            [operator_options.vipu_cluster]
            if operator_options.vipu_cluster
            else await controller.clusters()
        )
    ]


async def _places_of_site(
    operator_options: Serving, vipu_site: VipuSite, controller: VipuController
) -> list[DevicePlace]:
    vipu_clusters = [operator_options.vipu_cluster]
    if not vipu_clusters[0]:
        vipu_clusters = await controller.clusters()
    if not vipu_clusters:
        raise NotFound("it has no cluster", would_work="vipu-admin create cluster")
    return [
        DevicePlace(vipu_site, controller, cluster, operator_options.allocation)
        for cluster in vipu_clusters
    ]


async def planned(kubeconfig: str, namespace: str, job_name: str) -> list[str]:
    """Return what the operator would do now for a job, as lines, by what the cluster shows of it.

    Raises PodwrightError.
    """
    async with connect(kubeconfig) as kube:
        job_object = await kube.job(namespace, job_name)
        if job_object is None:
            raise NotFound(
                f"there is no IPUJob {namespace}/{job_name}", would_work="kubectl get ipujobs -A"
            )
        job = read_job(job_object)
        pod_views = [read_pod(job_pod) for job_pod in await kube.pods(namespace, job.key.uid)]
    held_partitions = {
        job_pod.instance: Holds(instance=job_pod.instance, name=job_pod.partition, state="READY")
        for job_pod in pod_views
        if job_pod.partition
    }
    return plan(job, pod_views, held_partitions, time.time()).lines()
