"""`podwright kubernetes …`: IPUJobs on a cluster."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

from podwright.cli.shared._print_result import log_to_stderr, needing
from podwright.cli.shared._verb_definition import Verb, VerbGroup
from podwright.ground import option_rows as opt
from podwright.guests.kubernetes.command import _kubernetes_options as options

_EXAMPLES = """\
examples:
  podwright kubernetes manifests --controllers pod1:8090 | kubectl apply -f -
  podwright kubernetes manifests --simulated pod16 | kubectl apply -f -
  podwright kubernetes manifests --for 1.20 --crd | kubectl apply -f -
  podwright kubernetes chart ./podwright-operator
  podwright kubernetes plan train          what the operator would do now for a job
  podwright kubernetes remove --controllers pod1:8090   before the operator goes for good

It needs podwright[kubernetes]."""


_Options = TypeVar("_Options", bound=opt.OptionTable)


def _print_manifests(arguments: options.ManifestOptions) -> int:
    from podwright.guests.kubernetes import as_yaml, crd, manifests, minor_of
    from podwright.guests.kubernetes.command._operator_from_options import chosen_setting

    minor = minor_of(arguments.version)
    objects = (
        [crd(minor)] if arguments.crd else manifests(chosen_setting(arguments, "manifests"), minor)
    )
    sys.stdout.write(as_yaml(objects))
    return 0


def _write_chart(arguments: options.FolderOptions) -> int:
    from pathlib import Path

    from podwright.guests.kubernetes import chart, write_files

    write_files(Path(arguments.folder), chart())
    print(f"helm install podwright {arguments.folder} --set global.vipuControllers=HOST:PORT")
    return 0


def _run_operator(arguments: options.OperatorOptions) -> int:
    import asyncio

    from podwright.guests.kubernetes import serve
    from podwright.guests.kubernetes.command._operator_from_options import operator_serving

    log_to_stderr()
    return asyncio.run(serve(operator_serving(arguments)))


def _print_plan(arguments: options.PlanOptions) -> int:
    import asyncio

    from podwright.guests.kubernetes import planned

    lines = asyncio.run(planned(arguments.kubeconfig, arguments.namespace, arguments.job))
    print("\n".join(lines))
    return 0


def _run_remove(arguments: options.RemoveOptions) -> int:
    import asyncio

    from podwright.guests.kubernetes import remove, remove_for_gone
    from podwright.guests.kubernetes.command._operator_from_options import removal_serving

    serving = removal_serving(arguments)
    work = remove_for_gone if arguments.cluster_gone else remove
    count = asyncio.run(work(serving, lambda line: print(line, flush=True)))
    if arguments.cluster_gone:
        print(f"Jobs whose partitions were given back: {count}.")
        return 0
    print(f"IPUJobs that nothing keeps any more: {count}." if count else "No IPUJob is kept.")
    return 0


def _write_worker_files(arguments: options.FolderOptions) -> int:
    from pathlib import Path

    from podwright.guests.kubernetes import write_worker_files

    write_worker_files(Path(arguments.folder))
    return 0


def _verb(
    name: str,
    kind: type[_Options],
    run: Callable[[_Options], int],
    summary: str,
    description: str | None = None,
) -> Verb[_Options]:
    """Return a verb that says what to install where a package is missing."""

    def run_installed(arguments: _Options) -> int:
        with needing("kubernetes", "podwright kubernetes"):
            return run(arguments)

    return Verb(name, kind, run_installed, summary, description)


VERBS = (
    VerbGroup(
        "podwright kubernetes",
        "IPUJobs on a Kubernetes cluster: manifests, chart, operator",
        "Run IPUJobs (graphcore.ai/v1alpha1) on partitions of V-IPU controllers.",
        _EXAMPLES,
        (
            _verb(
                "manifests",
                options.ManifestOptions,
                _print_manifests,
                "print what a cluster needs, as YAML",
            ),
            _verb(
                "chart",
                options.FolderOptions,
                _write_chart,
                "write a Helm chart of the same objects, with Graphcore's values",
            ),
            _verb(
                "operator",
                options.OperatorOptions,
                _run_operator,
                "run IPUJobs; in a cluster, or beside it",
                "Watches IPUJobs, gets their partitions, and makes their pods. One at a time "
                "acts, by a lease in the cluster.",
            ),
            _verb(
                "plan",
                options.PlanOptions,
                _print_plan,
                "print what the operator would do now for a job; nothing is changed",
            ),
            _verb(
                "remove",
                options.RemoveOptions,
                _run_remove,
                "end what jobs run and give their partitions back, before the operator goes",
                "Ends the pods of all IPUJobs, gives their partitions back, and takes the "
                "finalizers away that keep jobs and their namespaces. The operator must have "
                "ended. Jobs themselves stay, but for those that were deleted.",
            ),
            _verb(
                "worker-files",
                options.FolderOptions,
                _write_worker_files,
                "write what an image needs whose files are put into pods: launcher, relay, a "
                "Python",
                "For builders of images: FOLDER must lie at /podwright in the image.",
            ),
        ),
    ),
)
