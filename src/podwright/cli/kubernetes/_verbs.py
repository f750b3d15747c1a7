"""`podwright kubernetes …`: IPUJobs on a cluster."""

from __future__ import annotations

import argparse
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from podwright.cli.shared._arguments import positive

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


def add_parser(verbs: Any, _words: Sequence[str] = ()) -> None:
    """Add `kubernetes` and its verbs."""
    parser = verbs.add_parser(
        "kubernetes",
        help="IPUJobs on a Kubernetes cluster: manifests, chart, operator",
        description="Run IPUJobs (graphcore.ai/v1alpha1) on partitions of V-IPU controllers.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verb = parser.add_subparsers(
        metavar="VERB", dest="kubernetes_verb", required=True, prog="podwright kubernetes"
    )
    _manifests(verb)
    _kustomize(verb)
    _chart(verb)
    _operator(verb)
    _plan(verb)
    _remove(verb)
    _worker_files(verb)


def main(arguments: argparse.Namespace) -> int:
    """Run the verb that was parsed. Returns the exit code."""
    try:
        code: int = arguments.run_kubernetes(arguments)
        return code
    except ImportError as error:
        from podwright.errors import Unavailable

        raise Unavailable(
            f"{error.name} is not installed",
            operation="podwright kubernetes",
            would_work="pip install 'podwright[kubernetes]'",
        ) from None


def _manifests(verbs: Any) -> None:
    words = verbs.add_parser("manifests", help="print what a cluster needs, as YAML")
    words.add_argument(
        "--for",
        dest="version",
        metavar="VERSION",
        default="1.25",
        help="the cluster's Kubernetes, 1.16 or newer; from 1.25 on (the default) the API server "
        "itself checks what the schema cannot say",
    )
    words.add_argument("--crd", action="store_true", help="the definition of IPUJob alone")
    _setting(words)
    words.set_defaults(run_kubernetes=_print_manifests)


def _kustomize(verbs: Any) -> None:
    words = verbs.add_parser("kustomize", help="write a kustomize base of the same objects")
    words.add_argument("folder", metavar="FOLDER", help="it must be empty or missing")
    words.add_argument(
        "--for", dest="version", metavar="VERSION", default="1.25", help="as for manifests"
    )
    _setting(words)
    words.set_defaults(run_kubernetes=_write_kustomize)


def _setting(words: Any) -> None:
    words.add_argument(
        "--controllers", metavar="LIST", default="", help="V-IPU controllers, as for operator"
    )
    words.add_argument(
        "--simulated", metavar="PRESET", default="", help="simulated devices instead: pod16, say"
    )
    words.add_argument("--image", help="of the operator")
    words.add_argument("--namespace", default="podwright", help="of the operator, podwright")
    words.add_argument(
        "--credentials-secret",
        metavar="NAME",
        default="",
        help="a secret of that namespace with vipu-cli.hcl, and what that names",
    )
    words.add_argument(
        "--exec-fallback",
        action="store_true",
        help="launchers call workers that they cannot connect to through the API server; for that "
        "the operator may itself use pods/exec everywhere, and make accounts and roles",
    )
    words.add_argument(
        "--service-monitor",
        action="store_true",
        help="a Service and a ServiceMonitor too, by which Prometheus finds the operator",
    )


def _print_manifests(arguments: argparse.Namespace) -> int:
    from podwright.guests.kubernetes import as_yaml, crd, manifests, minor_of

    minor = minor_of(arguments.version)
    objects = [crd(minor)] if arguments.crd else manifests(_chosen(arguments), minor)
    sys.stdout.write(as_yaml(objects))
    return 0


def _write_kustomize(arguments: argparse.Namespace) -> int:
    from podwright.guests.kubernetes import kustomize, minor_of

    files = kustomize(_chosen(arguments), minor_of(arguments.version))
    _write(arguments.folder, files)
    print(f"kubectl apply --server-side -k {arguments.folder}")
    return 0


def _chosen(arguments: argparse.Namespace) -> Setting:
    from podwright.errors import InvalidRequest
    from podwright.guests.kubernetes import Setting, read_sites

    if bool(arguments.controllers) == bool(arguments.simulated):
        raise InvalidRequest(
            "where partitions come from is not said",
            operation=f"podwright kubernetes {arguments.kubernetes_verb}",
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


def _chart(verbs: Any) -> None:
    words = verbs.add_parser(
        "chart", help="write a Helm chart of the same objects, with Graphcore's values"
    )
    words.add_argument("folder", metavar="FOLDER", help="it must be empty or missing")
    words.set_defaults(run_kubernetes=_write_chart)


def _write_chart(arguments: argparse.Namespace) -> int:
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
        raise AlreadyExists(f"{folder} is not empty", would_work="choose another folder")
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


def _cluster(words: Any) -> None:
    words.add_argument(
        "--kubeconfig", metavar="FILE", default="", help="how to reach the cluster from outside"
    )


def _controllers(words: Any, help: str = "", *, required: bool = True) -> None:
    words.add_argument("--controllers", metavar="LIST", default="", required=required, help=help)
    words.add_argument("--vipu-cluster", metavar="NAME", default="", help="only this one's IPUs")
    words.add_argument("--allocation", metavar="NAME", default="", help="only this one's IPUs")
    words.add_argument(
        "--config", metavar="FILE", default="", help="key or certificates, as vipu-cli.hcl has them"
    )


def _cluster_name(words: Any) -> None:
    words.add_argument(
        "--cluster-name",
        metavar="NAME",
        default="",
        help="what this cluster is called in partitions; the uid of its kube-system by default",
    )


def _lease(words: Any) -> None:
    words.add_argument(
        "--lease",
        metavar="NAMESPACE/NAME",
        default="podwright/podwright-operator",
        help="who holds it acts",
    )


def _operator(verbs: Any) -> None:
    words = verbs.add_parser(
        "operator",
        help="run IPUJobs; in a cluster, or beside it",
        description="Watches IPUJobs, gets their partitions, and makes their pods. One at a time "
        "acts, by a lease in the cluster.",
    )
    _cluster(words)
    _controllers(
        words,
        "V-IPU controllers: HOST:PORT[:LABEL=VALUE], with commas between; the label is that "
        "of the nodes that reach its IPUs. Or unix:PATH",
    )
    words.add_argument(
        "--seen-as",
        metavar="HOST:PORT",
        default="",
        help="where programs in pods reach the controller, if not there",
    )
    _cluster_name(words)
    words.add_argument("--watch-namespace", metavar="NAME", default="", help="only jobs of this")
    _lease(words)
    words.add_argument(
        "--identity", metavar="NAME", default="", help="who holds it; this host's name by default"
    )
    words.add_argument(
        "--host-network",
        choices=("true", "false"),
        default="true",
        help="whether workers are on their node's own network, as real IPUs need it; true",
    )
    words.add_argument(
        "--launcher-image", metavar="IMAGE", default="", help="of launchers; the workers' otherwise"
    )
    words.add_argument(
        "--image",
        metavar="IMAGE",
        default="",
        help="Podwright's, out of which launcher and relay are put into pods; by default none are, "
        "and a launcher cannot reach its workers",
    )
    words.add_argument(
        "--exec-fallback",
        choices=("true", "false"),
        default="false",
        help="whether launchers get the right to call their workers through the API server, where "
        "they cannot connect to them; false",
    )
    words.add_argument(
        "--sweep-seconds", type=positive, metavar="S", default=60, help="between two full looks, 60"
    )
    words.add_argument(
        "--listen",
        metavar="HOST:PORT",
        default="",
        help="where /metrics, /livez and /readyz are served, to anybody; nowhere by default",
    )
    words.set_defaults(run_kubernetes=_run_operator)


def _run_operator(arguments: argparse.Namespace) -> int:
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


def _plan(verbs: Any) -> None:
    words = verbs.add_parser(
        "plan", help="print what the operator would do now for a job; nothing is changed"
    )
    _cluster(words)
    words.add_argument("job", metavar="JOB")
    words.add_argument("-n", "--namespace", default="default", help="default")
    words.set_defaults(run_kubernetes=_print_plan)


def _print_plan(arguments: argparse.Namespace) -> int:
    import asyncio

    from podwright.guests.kubernetes import planned

    lines = asyncio.run(planned(arguments.kubeconfig, arguments.namespace, arguments.job))
    print("\n".join(lines))
    return 0


def _remove(verbs: Any) -> None:
    words = verbs.add_parser(
        "remove",
        help="end what jobs run and give their partitions back, before the operator goes",
        description="Ends the pods of all IPUJobs, gives their partitions back, and takes the "
        "finalizers away that keep jobs and their namespaces. The operator must have ended. "
        "Jobs themselves stay, but for those that were deleted.",
    )
    _cluster(words)
    _controllers(words, "V-IPU controllers, as for operator", required=False)
    words.add_argument(
        "--leave-partitions",
        action="store_true",
        help="give none back, since the controllers are gone for good",
    )
    words.add_argument(
        "--cluster-gone",
        action="store_true",
        help="the cluster of --cluster-name is no more, with all its pods: ask controllers alone",
    )
    _cluster_name(words)
    _lease(words)
    words.add_argument("-n", "--namespace", default="", help="only jobs of this; all by default")
    words.set_defaults(run_kubernetes=_run_remove)


def _run_remove(arguments: argparse.Namespace) -> int:
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


def _worker_files(verbs: Any) -> None:
    words = verbs.add_parser(
        "worker-files",
        help="write what an image needs whose files are put into pods: launcher, relay, a Python",
        description="For builders of images: FOLDER must lie at /podwright in the image.",
    )
    words.add_argument("folder", metavar="FOLDER", help="it must be empty or missing")
    words.set_defaults(run_kubernetes=_write_worker_files)


def _write_worker_files(arguments: argparse.Namespace) -> int:
    from pathlib import Path

    from podwright.guests.kubernetes import write_worker_files

    write_worker_files(Path(arguments.folder))
    return 0
