"""What the options of `podwright kubernetes` stand for, as values of this guest."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from podwright.errors import InvalidRequest
from podwright.fabric import presets
from podwright.guests.kubernetes.command._kubernetes_options import (
    OperatorOptions,
    RemoveOptions,
    SettingOptions,
)
from podwright.guests.kubernetes.partitions._vipu_controller_list import read_sites
from podwright.guests.kubernetes.pods._manifests import Setting
from podwright.http import host_port

if TYPE_CHECKING:
    from podwright.guests.kubernetes.operator._operator_process import Serving


def chosen_setting(arguments: SettingOptions, verb: str) -> Setting:
    """Return the objects' setting. Raises InvalidRequest where partitions come from nowhere."""
    if bool(arguments.controllers) == bool(arguments.simulated):
        raise InvalidRequest(
            "--controllers and --simulated are both given"
            if arguments.controllers
            else "no option says which controller makes partitions",
            operation=f"podwright kubernetes {verb}",
            would_work="--controllers HOST:PORT, or --simulated pod16",
        )
    if arguments.controllers:
        read_sites(arguments.controllers)
    elif arguments.simulated not in presets():
        raise InvalidRequest(
            f"there is no simulated pod {arguments.simulated[:40]!r}",
            operation=f"podwright kubernetes {verb}",
            would_work=f"--simulated with one of {', '.join(presets())}",
        )
    setting = Setting(
        namespace=arguments.namespace,
        controllers=arguments.controllers,
        simulated=arguments.simulated,
        credentials=arguments.credentials_secret,
        cluster_name=arguments.cluster_name,
        host_network=arguments.host_network != "false",
        service_monitor=arguments.service_monitor,
    )
    return setting._replace(image=arguments.image) if arguments.image else setting


def operator_serving(arguments: OperatorOptions) -> Serving:
    """Return what an operator serves. Raises InvalidRequest."""
    from podwright.guests.kubernetes.operator._operator_process import Serving
    from podwright.guests.kubernetes.pods._pod_objects import PodOptions

    return Serving(
        sites=read_sites(arguments.controllers, arguments.seen_as),
        kubeconfig=arguments.kubeconfig,
        credentials=arguments.config,
        vipu_cluster=arguments.vipu_cluster,
        allocation=arguments.allocation,
        cluster_name=arguments.cluster_name,
        namespace=arguments.watch_namespace,
        lease=arguments.lease,
        identity=arguments.identity or socket.gethostname() or f"pid-{os.getpid()}",
        options=PodOptions(
            host_network=arguments.host_network == "true",
            launcher_image=arguments.launcher_image,
            image=arguments.image,
        ),
        room_s=arguments.room_after,
        sweep_s=float(arguments.sweep_seconds),
        listen=host_port(arguments.listen, "--listen") if arguments.listen else None,
    )


def removal_serving(arguments: RemoveOptions) -> Serving:
    """Return what is removed. Raises InvalidRequest where it is not said."""
    from podwright.guests.kubernetes.operator._operator_process import Serving

    if bool(arguments.controllers) == arguments.leave_partitions:
        raise InvalidRequest(
            "no option says what becomes of the jobs' partitions",
            operation="podwright kubernetes remove",
            would_work="--controllers HOST:PORT, or --leave-partitions",
        )
    if arguments.cluster_gone and not (arguments.controllers and arguments.cluster_name):
        raise InvalidRequest(
            "no option says which cluster is gone",
            operation="podwright kubernetes remove --cluster-gone",
            would_work="--controllers HOST:PORT --cluster-name NAME, as its partitions have it",
        )
    return Serving(
        sites=read_sites(arguments.controllers) if arguments.controllers else (),
        kubeconfig=arguments.kubeconfig,
        credentials=arguments.config,
        vipu_cluster=arguments.vipu_cluster,
        allocation=arguments.allocation,
        cluster_name=arguments.cluster_name,
        namespace=arguments.namespace,
        lease=arguments.lease,
        identity=f"podwright kubernetes remove on {socket.gethostname()}",
    )
