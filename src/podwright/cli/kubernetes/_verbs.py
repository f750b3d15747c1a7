"""`podwright kubernetes …`: IPUJobs on a cluster."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from podwright.cli.shared import _option_table as opt
from podwright.cli.shared._arguments import positive
from podwright.cli.shared._verb import Verb, VerbGroup

if TYPE_CHECKING:
    from podwright.guests.kubernetes import Setting

_EXAMPLES = """\
examples:
  podwright kubernetes manifests --controllers pod1:8090 | kubectl apply -f -
  podwright kubernetes manifests --simulated pod16 | kubectl apply -f -
  podwright kubernetes manifests --for 1.20 --crd | kubectl apply -f -
  podwright kubernetes kustomize ./base --controllers pod1:8090
  podwright kubernetes chart ./podwright-operator
  podwright kubernetes plan train          what the operator would do now for a job
  podwright kubernetes remove --controllers pod1:8090   before the operator goes for good

It needs podwright[kubernetes]."""


_Options = TypeVar("_Options", bound=opt.OptionTable)

#: Rows that several verbs have.
_FOLDER = opt.argument("it must be empty or missing", "FOLDER")
_KUBECONFIG = opt.text("how to reach the cluster from outside", "FILE")
_VIPU_CLUSTER = opt.text("only this one's IPUs", "NAME")
_ALLOCATION = opt.text("only this one's IPUs", "NAME")
_CONFIG = opt.text("key or certificates, as vipu-cli.hcl has them", "FILE")
_CLUSTER_NAME = opt.text(
    "what this cluster is called in partitions; the uid of its kube-system by default", "NAME"
)
_LEASE = opt.text("who holds it acts", "NAMESPACE/NAME", "podwright/podwright-operator")


class _SettingOptions(opt.OptionTable):
    """The operator's objects in a cluster."""

    controllers = opt.text("V-IPU controllers, as for operator", "LIST")
    simulated = opt.text("simulated devices instead: pod16, say", "PRESET")
    image = opt.optional("of the operator")
    namespace = opt.text("of the operator, podwright", default="podwright")
    credentials_secret = opt.text(
        "a secret of that namespace with vipu-cli.hcl, and what that names", "NAME"
    )
    exec_fallback = opt.flag(
        "launchers call workers that they cannot connect to through the API server; for that "
        "the operator may itself use pods/exec everywhere, and make accounts and roles"
    )
    service_monitor = opt.flag(
        "a Service and a ServiceMonitor too, by which Prometheus finds the operator"
    )


class _VersionOptions(opt.OptionTable):
    version = opt.text(
        "the cluster's Kubernetes, 1.16 or newer; from 1.25 on (the default) the API server "
        "itself checks what the schema cannot say",
        "VERSION",
        "1.25",
        name="--for",
    )
    crd = opt.flag("the definition of IPUJob alone")


class _ManifestOptions(_SettingOptions, _VersionOptions):
    """What `manifests` prints: the rows of the second base come first."""


class _BaseOptions(opt.OptionTable):
    folder = _FOLDER
    version = opt.text("as for manifests", "VERSION", "1.25", name="--for")


class _KustomizeOptions(_SettingOptions, _BaseOptions):
    """What `kustomize` writes."""


class _FolderOptions(opt.OptionTable):
    folder = _FOLDER


class _OperatorOptions(opt.OptionTable):
    kubeconfig = _KUBECONFIG
    controllers = opt.text(
        "V-IPU controllers: HOST:PORT[:LABEL=VALUE], with commas between; the label is that "
        "of the nodes that reach its IPUs. Or unix:PATH",
        "LIST",
        required=True,
    )
    vipu_cluster, allocation, config = _VIPU_CLUSTER, _ALLOCATION, _CONFIG
    seen_as = opt.text("where programs in pods reach the controller, if not there", "HOST:PORT")
    cluster_name = _CLUSTER_NAME
    watch_namespace = opt.text("only jobs of this", "NAME")
    lease = _LEASE
    identity = opt.text("who holds it; this host's name by default", "NAME")
    host_network = opt.choice(
        "whether workers are on their node's own network, as real IPUs need it; true",
        ("true", "false"),
        "true",
    )
    launcher_image = opt.text("of launchers; the workers' otherwise", "IMAGE")
    image = opt.text(
        "Podwright's, out of which launcher and relay are put into pods; by default none are, "
        "and a launcher cannot reach its workers",
        "IMAGE",
    )
    exec_fallback = opt.choice(
        "whether launchers get the right to call their workers through the API server, where "
        "they cannot connect to them; false",
        ("true", "false"),
        "false",
    )
    sweep_seconds = opt.value("between two full looks, 60", "S", positive, 60)
    listen = opt.text(
        "where /metrics, /livez and /readyz are served, to anybody; nowhere by default", "HOST:PORT"
    )


class _PlanOptions(opt.OptionTable):
    kubeconfig = _KUBECONFIG
    job = opt.argument("", "JOB")
    namespace = opt.text("default", default="default", name="-n --namespace")


class _RemoveOptions(opt.OptionTable):
    kubeconfig = _KUBECONFIG
    controllers = opt.text("V-IPU controllers, as for operator", "LIST")
    vipu_cluster, allocation, config = _VIPU_CLUSTER, _ALLOCATION, _CONFIG
    leave_partitions = opt.flag("give none back, since the controllers are gone for good")
    cluster_gone = opt.flag(
        "the cluster of --cluster-name is no more, with all its pods: ask controllers alone"
    )
    cluster_name = _CLUSTER_NAME
    lease = _LEASE
    namespace = opt.text("only jobs of this; all by default", name="-n --namespace")


def _print_manifests(arguments: _ManifestOptions) -> int:
    from podwright.guests.kubernetes import as_yaml, crd, manifests, minor_of

    minor = minor_of(arguments.version)
    objects = [crd(minor)] if arguments.crd else manifests(_chosen(arguments, "manifests"), minor)
    sys.stdout.write(as_yaml(objects))
    return 0


def _write_kustomize(arguments: _KustomizeOptions) -> int:
    from podwright.guests.kubernetes import kustomize, minor_of

    files = kustomize(_chosen(arguments, "kustomize"), minor_of(arguments.version))
    _write(arguments.folder, files)
    print(f"kubectl apply --server-side -k {arguments.folder}")
    return 0


def _chosen(arguments: _SettingOptions, verb: str) -> Setting:
    from podwright.errors import InvalidRequest
    from podwright.guests.kubernetes import Setting, read_sites

    if bool(arguments.controllers) == bool(arguments.simulated):
        raise InvalidRequest(
            "where partitions come from is not said",
            operation=f"podwright kubernetes {verb}",
            would_work="--controllers HOST:PORT, or --simulated pod16",
        )
    if arguments.controllers:
        read_sites(arguments.controllers)
    setting = Setting(
        namespace=arguments.namespace,
        controllers=arguments.controllers,
        simulated=arguments.simulated,
        credentials=arguments.credentials_secret,
        exec_fallback=arguments.exec_fallback,
        service_monitor=arguments.service_monitor,
    )
    return setting._replace(image=arguments.image) if arguments.image else setting


def _write_chart(arguments: _FolderOptions) -> int:
    from podwright.guests.kubernetes import chart

    _write(arguments.folder, chart())
    print(f"helm install podwright {arguments.folder} --set global.vipuControllers=HOST:PORT")
    return 0


def _write(name: str, files: Mapping[str, str]) -> None:
    """Write files into a folder that is empty or missing. Raises AlreadyExists."""
    from pathlib import Path

    from podwright.errors import AlreadyExists

    folder = Path(name)
    if folder.exists() and any(folder.iterdir()):
        raise AlreadyExists(f"{folder} is not empty", would_work="another folder")
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


def _run_operator(arguments: _OperatorOptions) -> int:
    import asyncio
    import logging

    from podwright.guests.kubernetes import PodOptions, Serving, read_sites, serve
    from podwright.http import host_port

    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    serving = Serving(
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
            exec_fallback=arguments.exec_fallback == "true",
        ),
        sweep_s=float(arguments.sweep_seconds),
        listen=host_port(arguments.listen, "--listen") if arguments.listen else None,
    )
    return asyncio.run(serve(serving))


def _print_plan(arguments: _PlanOptions) -> int:
    import asyncio

    from podwright.guests.kubernetes import planned

    lines = asyncio.run(planned(arguments.kubeconfig, arguments.namespace, arguments.job))
    print("\n".join(lines))
    return 0


def _run_remove(arguments: _RemoveOptions) -> int:
    import asyncio

    from podwright.errors import InvalidRequest
    from podwright.guests.kubernetes import Serving, read_sites, remove, remove_for_gone

    if bool(arguments.controllers) == arguments.leave_partitions:
        raise InvalidRequest(
            "what becomes of the jobs' partitions is not said",
            operation="podwright kubernetes remove",
            would_work="--controllers HOST:PORT, or --leave-partitions",
        )
    if arguments.cluster_gone and not (arguments.controllers and arguments.cluster_name):
        raise InvalidRequest(
            "which cluster is gone is not said",
            operation="podwright kubernetes remove --cluster-gone",
            would_work="--controllers HOST:PORT --cluster-name NAME, as its partitions have it",
        )
    serving = Serving(
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
    work = remove_for_gone if arguments.cluster_gone else remove
    count = asyncio.run(work(serving, lambda line: print(line, flush=True)))
    if arguments.cluster_gone:
        print(f"Jobs whose partitions were given back: {count}.")
        return 0
    print(f"IPUJobs that nothing keeps any more: {count}." if count else "No IPUJob is kept.")
    return 0


def _write_worker_files(arguments: _FolderOptions) -> int:
    from pathlib import Path

    from podwright.guests.kubernetes import write_worker_files

    write_worker_files(Path(arguments.folder))
    return 0


def _verb(
    name: str,
    options: type[_Options],
    run: Callable[[_Options], int],
    summary: str,
    description: str | None = None,
) -> Verb[_Options]:
    """Return a verb that says what to install where a package is missing."""

    def run_installed(arguments: _Options) -> int:
        try:
            return run(arguments)
        except ImportError as error:
            from podwright.errors import Unavailable

            raise Unavailable(
                f"{error.name} is not installed",
                operation="podwright kubernetes",
                would_work="pip install 'podwright[kubernetes]'",
            ) from None

    return Verb(name, options, run_installed, summary, description)


VERBS = (
    VerbGroup(
        "podwright kubernetes",
        "IPUJobs on a Kubernetes cluster: manifests, chart, operator",
        "Run IPUJobs (graphcore.ai/v1alpha1) on partitions of V-IPU controllers.",
        _EXAMPLES,
        (
            _verb(
                "manifests",
                _ManifestOptions,
                _print_manifests,
                "print what a cluster needs, as YAML",
            ),
            _verb(
                "kustomize",
                _KustomizeOptions,
                _write_kustomize,
                "write a kustomize base of the same objects",
            ),
            _verb(
                "chart",
                _FolderOptions,
                _write_chart,
                "write a Helm chart of the same objects, with Graphcore's values",
            ),
            _verb(
                "operator",
                _OperatorOptions,
                _run_operator,
                "run IPUJobs; in a cluster, or beside it",
                "Watches IPUJobs, gets their partitions, and makes their pods. One at a time "
                "acts, by a lease in the cluster.",
            ),
            _verb(
                "plan",
                _PlanOptions,
                _print_plan,
                "print what the operator would do now for a job; nothing is changed",
            ),
            _verb(
                "remove",
                _RemoveOptions,
                _run_remove,
                "end what jobs run and give their partitions back, before the operator goes",
                "Ends the pods of all IPUJobs, gives their partitions back, and takes the "
                "finalizers away that keep jobs and their namespaces. The operator must have "
                "ended. Jobs themselves stay, but for those that were deleted.",
            ),
            _verb(
                "worker-files",
                _FolderOptions,
                _write_worker_files,
                "write what an image needs whose files are put into pods: launcher, relay, a "
                "Python",
                "For builders of images: FOLDER must lie at /podwright in the image.",
            ),
        ),
    ),
)
