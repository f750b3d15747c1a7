"""The options of `podwright kubernetes`."""

from __future__ import annotations

from podwright.ground import option_rows as opt

#: Rows that several verbs have.
_FOLDER_ARGUMENT = opt.argument("it must be empty or missing", "FOLDER")
_KUBECONFIG_OPTION = opt.text("how to reach the cluster from outside", "FILE")
_VIPU_CLUSTER_OPTION = opt.text("only this one's IPUs", "NAME")
_ALLOCATION_OPTION = opt.text("only this one's IPUs", "NAME")
_CREDENTIALS_OPTION = opt.text("key or certificates, as vipu-cli.hcl has them", "FILE")
_CLUSTER_NAME_OPTION = opt.text(
    "what this cluster is called in partitions; the uid of its kube-system by default", "NAME"
)
_LEASE_OPTION = opt.text("who holds it acts", "NAMESPACE/NAME", "podwright/podwright-operator")


class SettingOptions(opt.OptionTable):
    """The operator's objects in a cluster."""

    controllers = opt.text("V-IPU controllers, as for operator", "LIST")
    simulated = opt.text("simulated devices instead: pod16, say", "PRESET")
    image = opt.optional("of the operator")
    namespace = opt.text("of the operator, podwright", default="podwright")
    credentials_secret = opt.text(
        "a secret of that namespace with vipu-cli.hcl, and what that names", "NAME"
    )
    cluster_name = _CLUSTER_NAME_OPTION
    host_network = opt.choice(
        "as for operator; true, and false with --simulated", ("true", "false"), None
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


class ManifestOptions(SettingOptions, _VersionOptions):
    """What `manifests` prints: the rows of the second base come first."""


class FolderOptions(opt.OptionTable):
    """The folder that a verb writes."""

    folder = _FOLDER_ARGUMENT


class OperatorOptions(opt.OptionTable):
    """What an operator serves."""

    kubeconfig = _KUBECONFIG_OPTION
    controllers = opt.text(
        "V-IPU controllers: HOST:PORT[:LABEL=VALUE], with commas between; the label is that "
        "of the nodes that reach its IPUs. Or unix:PATH",
        "LIST",
        required=True,
    )
    vipu_cluster, allocation, config = _VIPU_CLUSTER_OPTION, _ALLOCATION_OPTION, _CREDENTIALS_OPTION
    seen_as = opt.text("where programs in pods reach the controller, if not there", "HOST:PORT")
    cluster_name = _CLUSTER_NAME_OPTION
    watch_namespace = opt.text("only jobs of this", "NAME")
    lease = _LEASE_OPTION
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
    room_after = opt.value(
        "how long a job waits before devices are kept for it that are in use; 60",
        "S",
        opt.seconds,
        60.0,
    )
    sweep_seconds = opt.value("between two full looks, 60", "S", opt.positive, 60)
    listen = opt.text(
        "where /metrics, /livez and /readyz are served, to anybody; nowhere by default", "HOST:PORT"
    )


class PlanOptions(opt.OptionTable):
    """The job whose plan is printed."""

    kubeconfig = _KUBECONFIG_OPTION
    job = opt.argument("", "JOB")
    namespace = opt.text("default", default="default", name="-n --namespace")


class RemoveOptions(opt.OptionTable):
    """What is removed before the operator goes."""

    kubeconfig = _KUBECONFIG_OPTION
    controllers = opt.text("V-IPU controllers, as for operator", "LIST")
    vipu_cluster, allocation, config = _VIPU_CLUSTER_OPTION, _ALLOCATION_OPTION, _CREDENTIALS_OPTION
    leave_partitions = opt.flag("give none back, since the controllers are gone for good")
    cluster_gone = opt.flag(
        "the cluster of --cluster-name is no more, with all its pods: ask controllers alone"
    )
    cluster_name = _CLUSTER_NAME_OPTION
    lease = _LEASE_OPTION
    namespace = opt.text("only jobs of this; all by default", name="-n --namespace")
