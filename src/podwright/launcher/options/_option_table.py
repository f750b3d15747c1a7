"""Every option of poprun: its name, its group in --help, and how its value is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar, cast

from podwright.errors import InvalidRequest
from podwright.ground import plugins
from podwright.launcher.options._core_placement import PLACEMENT_STRATEGIES
from podwright.launcher.options._instance_environment import HOST_IPC, PRIVATE_IPC
from podwright.launcher.options._move_notice import DEFAULT_MOVE_SECONDS, signal_number
from podwright.launcher.options._offline import TARGET_SIZES

_MAX_COUNT = 1 << 20  # The limit of replicas and instances, beyond any pod that was ever built.
#: Seconds from the last renewal of a lease to the fencing of its devices.
MIN_FENCE_SECONDS, MAX_FENCE_SECONDS = 15.0, 3600.0


class Option(NamedTuple):
    """One option. flag: the value that it has without a word. optional: whether it may also take
    one.

    meaning: what a value must be, in words. adds: whether each use adds to the earlier ones. name,
    field: as on the command line, and in `Options`.
    """

    group: str
    help: str
    default: Any
    read: Callable[[str], Any]
    value: str = "N"
    meaning: str = ""
    name: str = ""
    flag: str = ""
    optional: bool = False
    adds: bool = False
    field: str = ""


def _parse_count(count_text: str) -> int:
    return _parse_whole_number(count_text, 1, _MAX_COUNT)


def _parse_index(index_text: str) -> int:
    return _parse_whole_number(index_text, 0, _MAX_COUNT)


def _parse_port(port_text: str) -> int:
    return _parse_whole_number(port_text, 1, 65535)


def _parse_whole_number(number_text: str, smallest: int, largest: int) -> int:
    number_text = number_text.strip()
    if not (
        number_text.isascii()
        and number_text.isdigit()
        and len(number_text) < 12
        and smallest <= int(number_text) <= largest
    ):
        raise ValueError
    return int(number_text)


def _parse_seconds(seconds_text: str) -> float:
    parsed_seconds = float(seconds_text)
    if not 0 < parsed_seconds <= 1e7:
        raise ValueError
    return parsed_seconds


def _parse_fence_seconds(seconds_text: str) -> float:
    fence_seconds = float(seconds_text)
    if not MIN_FENCE_SECONDS <= fence_seconds <= MAX_FENCE_SECONDS:
        raise ValueError
    return fence_seconds


def _parse_yes_no(yes_no_text: str) -> bool:
    lowered = yes_no_text.strip().lower()
    if lowered in ("yes", "1", "on", "true"):
        return True
    if lowered in ("no", "0", "off", "false"):
        return False
    raise ValueError


def _parse_text(value_text: str) -> str:
    if not value_text.strip() or "\0" in value_text:
        raise ValueError
    return value_text.strip()


def _parse_host_list(host_list: str) -> str:
    if not host_list.strip():
        raise ValueError("names of hosts")
    if host_list.strip().endswith(","):
        raise ValueError("a list without blanks, or in quotes (--host a,b or --host 'a, b')")
    return _parse_text(host_list)


def _parse_instance_arguments(instance_and_arguments: str) -> tuple[int, str]:
    text, colon, arguments = instance_and_arguments.partition(":")
    if not colon:
        raise ValueError
    return _parse_index(text), arguments


def _parse_path(path_text: str) -> str:
    if not path_text or "\0" in path_text:
        raise ValueError
    return path_text


def _parse_optional_path(path_text: str) -> str:
    return _parse_path(path_text) if path_text else ""


def _parse_move_seconds(seconds_text: str) -> float:
    move_seconds = _parse_seconds(seconds_text)
    if move_seconds > 86400:
        raise ValueError
    return move_seconds


def _parse_non_negative_seconds(seconds_text: str) -> float:
    return 0.0 if float(seconds_text) == 0 else _parse_seconds(seconds_text)


def _parse_subnet(subnet_text: str) -> str:
    import ipaddress  # only where there is one to read

    return str(ipaddress.ip_network(subnet_text.strip(), strict=False))


def _parse_key_type(key_type_text: str) -> str:
    key_type = key_type_text.strip().lower()
    if key_type == "dsa":
        raise InvalidRequest(
            "--distribute-ssh-key-type=dsa: OpenSSH no longer takes or makes such keys",
            would_work="Use ed25519, ecdsa or rsa",
        )
    return _parser_of_choices("ed25519", "ecdsa", "rsa")(key_type)


def _parser_of_choices(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        lowered = text.strip().lower()
        if lowered not in choices:
            raise ValueError
        return lowered

    return parse


def _parse_launcher(launcher_name: str) -> str:
    builtin_launchers = ("auto", "mpirun", "srun", "local")
    try:
        return _parser_of_choices(*builtin_launchers)(launcher_name)
    except ValueError:
        all_launchers = (*builtin_launchers, *plugins.names(plugins.LAUNCHERS))
        if launcher_name.strip().lower() in all_launchers:
            return launcher_name.strip().lower()
        raise ValueError(_choices_text(all_launchers)) from None


def _choices_text(choices: Sequence[str]) -> str:
    return f"{', '.join(choices[:-1])} or {choices[-1]}"


def _parse_sync_type(sync_type_text: str) -> str:
    sync_type = sync_type_text.strip().upper().removeprefix("ST_")
    if not sync_type.replace("_", "").isalnum():
        raise ValueError
    return sync_type


_V = TypeVar("_V")
_D = TypeVar("_D")
_LAUNCH, _DEVICES, _VIPU, _MPI, _OUTPUT = (
    "Program",
    "Hosts and processes",
    "V-IPU server and partition",
    "MPI",
    "Output and help",
)


def _option(
    group: str, help: str, default: _D, read: Callable[[str], _V], **fields: Any
) -> _V | _D:
    """Return a row. Type checkers see the value that an instance of `Options` has."""
    return cast("_V | _D", Option(group, help, default, read, **fields))


def _count(group: str, help: str, default: _D) -> int | _D:
    return _option(group, help, default, _parse_count, meaning="a whole number above 0")


def _yes_no(group: str, help: str, default: _D, **fields: Any) -> bool | _D:
    words = {"value": "yes|no", "meaning": "yes or no (1 or 0, on or off, true or false)"}
    return _option(group, help, default, _parse_yes_no, **words, **fields)


def _flag(group: str, help: str) -> bool:
    """Return an option that means yes without a word, and may also take one."""
    return _yes_no(group, f"{help} (no)", False, flag="yes", optional=True)


def _word(group: str, help: str, value: str) -> str | None:
    return _option(group, help, None, _parse_text, value=value, meaning="a word")


def _file(
    group: str, help: str, value: str = "FILE", read: Callable[[str], str] = _parse_path
) -> str | None:
    return _option(group, help, None, read, value=value, meaning="a path")


def _repeated(
    group: str, help: str, value: str, read: Callable[[str], _V], meaning: str = ""
) -> tuple[_V, ...]:
    row = Option(group, help, (), read, value=value, meaning=meaning, adds=True)
    return cast("tuple[_V, ...]", row)


class Options:
    """The options of the command line as one value; None for one that was not given, if that
    matters. Names and defaults: PopRun guide, chapters 2 and 4.

    A class attribute is the row of an option; the attribute of an instance is its value.
    """

    program: tuple[str, ...] = ()
    num_replicas = _count(_LAUNCH, "number of replicas (1)", 1)
    num_instances = _count(
        _LAUNCH, "number of instances, among which replicas are divided evenly (1)", 1
    )
    ipus_per_replica = _count(_LAUNCH, "devices for each replica (1)", 1)
    num_ilds = _count(
        _LAUNCH, "link domains that the partition spans; by default the server decides", None
    )
    executable_cache_path = _file(
        _LAUNCH,
        'folder for what instances compile; "" switches the cache off',
        "DIR",
        read=_parse_optional_path,
    )
    autoreport_dir = _file(_LAUNCH, "write a profile of each instance, for PopVision", "DIR")
    offline_mode = _yes_no(
        _LAUNCH, "run without devices, to compile for --offline-target (no)", False
    )
    offline_target = _option(
        _LAUNCH,
        f"pod to compile for: {_choices_text(tuple(TARGET_SIZES))}",
        None,
        _parser_of_choices(*TARGET_SIZES),
        value="TARGET",
        meaning=_choices_text(tuple(TARGET_SIZES)),
    )
    import_config = _file(
        _LAUNCH, "read options and program from a file; typed options override it"
    )
    export_config = _file(_LAUNCH, "write options and program into a file, and launch")
    overwrite_config = _yes_no(
        _LAUNCH, "let --export-config replace a file; else the new name has the time (no)", False
    )
    timeout = _option(
        _LAUNCH,
        "end the launch when it takes longer",
        None,
        _parse_seconds,
        value="SECONDS",
        meaning="a time in seconds, above 0",
    )
    grace = _option(
        _LAUNCH,
        "time between SIGTERM and SIGKILL for instances (30; 20 in a Slurm job)",
        None,
        _parse_non_negative_seconds,
        value="SECONDS",
        meaning="a time in seconds",
    )
    max_restarts = _option(
        _LAUNCH,
        "how often to restart all instances when one fails (0)",
        0,
        _parse_index,
        meaning="a whole number",
    )
    fence_after = _option(
        _LAUNCH,
        "time without renewal of the lease until the devices are fenced (300)",
        None,
        _parse_fence_seconds,
        value="SECONDS",
        meaning=f"a time in seconds, from {MIN_FENCE_SECONDS:g} to {MAX_FENCE_SECONDS:g}",
    )
    movable = _flag(
        _LAUNCH, "let the server move the launch to other devices, once all instances can"
    )
    move_signal = _option(
        _LAUNCH,
        "signal that tells instances to move (RTMIN+10, used by popdist.onMove)",
        None,
        signal_number,
        value="SIGNAL",
        meaning="the name of a signal, such as USR1 or RTMIN+10",
    )
    move_seconds = _option(
        _LAUNCH,
        f"work that a move loses, which the server weighs ({DEFAULT_MOVE_SECONDS:g})",
        None,
        _parse_move_seconds,
        value="SECONDS",
        meaning="a time in seconds, above 0, at most a day",
    )
    pid_namespace = _yes_no(
        _LAUNCH, "give the instances of a host a PID namespace, if allowed (yes)", True
    )
    ipc = _option(
        _LAUNCH,
        "shared memory: the host's, or the launch's own, removed with it (host)",
        None,
        _parser_of_choices(HOST_IPC, PRIVATE_IPC),
        value="host|private",
        meaning=_choices_text((HOST_IPC, PRIVATE_IPC)),
    )
    dry_run = _option(
        _LAUNCH,
        "print the plan and stop; =server also asks whether it would be granted",
        "",
        _parser_of_choices("plan", "server"),
        value="plan|server",
        meaning="no value, plan or server",
        flag="plan",
        optional=True,
    )
    host = _option(
        _DEVICES, "-H: hosts to run on, such as n[1-4],m2", None, _parse_host_list, value="HOSTS"
    )
    hostfile = _file(_DEVICES, "--host-file: file with a host or a range of hosts on each line")
    host_subnet = _option(
        _DEVICES,
        "network between hosts; by default the first that all share",
        None,
        _parse_subnet,
        value="CIDR",
        meaning="a network such as 10.1.0.0/16",
    )
    distribute_ssh_key = _flag(
        _DEVICES, "copy your ssh key to the hosts; asks for the password once"
    )
    distribute_ssh_key_path = _file(_DEVICES, "folder that contains the key (~/.ssh)", "DIR")
    distribute_ssh_key_type = _option(
        _DEVICES,
        "ed25519, ecdsa or rsa; a missing key is made",
        None,
        _parse_key_type,
        value="TYPE",
        meaning="ed25519, ecdsa or rsa",
    )
    synchronise_python_venv = _flag(_DEVICES, "copy virtual environments to the hosts")
    synchronise_poplar_sdk = _flag(_DEVICES, "copy the enabled Poplar SDK to the hosts")
    synchronise_code = _flag(_DEVICES, "copy the folder in which poprun runs to the hosts")
    launcher = _option(
        _DEVICES,
        "what starts instances: mpirun, local or srun (both no MPI), or auto",
        "auto",
        _parse_launcher,
        value="HOW",
    )
    process_placement = _option(
        _DEVICES,
        "how NUMA nodes and cores are divided among instances (spreadnuma)",
        None,
        _parser_of_choices(*PLACEMENT_STRATEGIES),
        value="HOW",
        meaning=_choices_text(PLACEMENT_STRATEGIES),
    )
    gpu_visibility = _option(
        _DEVICES,
        "in a Slurm job, an instance sees its own GPUs or all of its node (task)",
        None,
        _parser_of_choices("task", "node"),
        value="task|node",
        meaning="task or node",
    )
    numa_aware = _yes_no(
        _DEVICES, "deprecated: use --process-placement spreadnuma or disabled", None
    )
    allow_run_as_root = _yes_no(_DEVICES, "let root launch; without it root gets a warning", None)
    vipu_tls_certs = _word(
        _VIPU, "folder with ca.pem, cert.pem and key.pem, for TLS (VIPU_CLI_TLS_CERTS)", "DIR"
    )
    vipu_server_host = _word(_VIPU, "name or address of the server (IPUOF_VIPU_API_HOST)", "HOST")
    vipu_server_port = _option(
        _VIPU,
        "port of the server (IPUOF_VIPU_API_PORT, or 8090)",
        None,
        _parse_port,
        meaning="a port from 1 to 65535",
    )
    vipu_server_timeout = _option(
        _VIPU,
        "time that a request to the server may take (120)",
        None,
        _parse_seconds,
        value="SECONDS",
        meaning="a time in seconds, above 0",
    )
    vipu_partition = _word(_VIPU, "partition to use (IPUOF_VIPU_API_PARTITION_ID)", "NAME")
    vipu_partition_attempts = _count(
        _VIPU, "how often to look until the partition is active (1)", 1
    )
    vipu_allocation = _word(_VIPU, "allocation to create a partition in", "NAME")
    vipu_cluster = _word(_VIPU, "deprecated: use --vipu-allocation", "NAME")
    sync_type = _option(
        _VIPU,
        "sync type of a new partition, such as ST_POD_NATIVE_DEFAULT",
        None,
        _parse_sync_type,
        value="TYPE",
        meaning="the name of a sync type",
    )
    vipu_wait = _flag(_VIPU, "wait in the server's queue until devices are free")
    update_partition = _yes_no(_VIPU, "replace a partition that does not fit (no)", False)
    reset_partition = _yes_no(
        _VIPU, "reset the partition first (yes, unless it is reconfigurable)", None
    )
    remove_partition = _yes_no(_VIPU, "remove a partition that this launch created (yes)", True)
    mpi_global_args = _repeated(_MPI, "arguments for mpirun; may be repeated", "ARGS", str)
    mpi_local_args = _repeated(
        _MPI, "mpirun's arguments for every instance; may be repeated", "ARGS", str
    )
    instance_mpi_local_args = _repeated(
        _MPI,
        "mpirun's arguments for instance I; may be repeated",
        "I:ARGS",
        _parse_instance_arguments,
        meaning="an instance, a colon and arguments, such as 0:-x NAME=value",
    )
    print_topology = _yes_no(_OUTPUT, "print hosts, domains, instances, replicas (no)", False)
    only_output_from_instance = _option(
        _OUTPUT,
        "print the output of instance I alone, unless another one fails",
        None,
        _parse_index,
        value="I",
        meaning="the index of an instance",
    )
    verbosity = _option(
        _OUTPUT,
        "-v prints what poprun does, -vv every detail",
        0,
        lambda text: min(_parse_count(text), 2),
        value="1|2",
        meaning="1 or 2",
        flag="1",
        optional=True,
        name="--verbose",
    )
    debug = _flag(_OUTPUT, "as -vv, and print where in Podwright an error comes from")
    trace = _file(_OUTPUT, "write a timeline, for Perfetto and podwright trace")
    log_dir = _file(_OUTPUT, "write the output of each instance into two files as well", "DIR")
    timestamps = _yes_no(_OUTPUT, "print the time in front of each line (no)", False)
    version = _option(_OUTPUT, "print the version", False, _parse_yes_no, flag="yes")
    version_format = _option(
        _OUTPUT,
        "text, full-text or full-json; the full formats list all parts",
        "",
        _parser_of_choices("text", "full-text", "full-json"),
        value="FORMAT",
        meaning="text, full-text or full-json",
    )
    help = _option(_OUTPUT, "print this help", False, _parse_yes_no, flag="yes")

    def __init__(self, **values: Any) -> None:
        vars(self).update({option.field: option.default for option in OPTIONS}, **values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Options) and vars(self) == vars(other)

    def __repr__(self) -> str:
        return f"Options({vars(self)})"


OPTIONS = tuple(
    row._replace(field=field, name=row.name or f"--{field.replace('_', '-')}")
    for field, row in vars(Options).items()
    if isinstance(row, Option)
)
OPTION_BY_NAME = {option.name: option for option in OPTIONS}
# PopRun's documents do not show the name of the option for a hosts file: both are known.
OPTION_BY_NAME["--host-file"] = OPTION_BY_NAME["--hostfile"]
SHORT = {"-H": OPTION_BY_NAME["--host"], "-h": OPTION_BY_NAME["--help"]}


def help_text() -> str:
    """Return the output of --help: the options in their groups."""
    lines = ["usage: poprun [options] program [arguments of the program]", ""]
    for option_group in (_LAUNCH, _DEVICES, _VIPU, _MPI, _OUTPUT):
        lines.append(f"{option_group}:")
        for option in OPTIONS:
            if option.group == option_group:
                placeholder = "" if option.flag else f" {option.value}"
                lines.append(f"  {option.name + placeholder:<36} {option.help}")
        lines.append("")
    lines.append("A shortened option works as long as only one option begins like it.")
    return "\n".join(lines)
