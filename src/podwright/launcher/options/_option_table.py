"""Every option of poprun: its name, its group in --help, and how its value is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

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

    meaning: what a value must be, in words. adds: whether each use adds to the earlier ones.
    """

    name: str
    group: str
    help: str
    value: str = "N"
    read: Callable[[str], Any] = str
    meaning: str = ""
    field: str = ""
    flag: str = ""
    optional: bool = False
    adds: bool = False


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


_COUNT_MEANING = "a whole number above 0"
_YES_NO_MEANING = "yes or no (1 or 0, on or off, true or false)"
_LAUNCH, _DEVICES, _VIPU, _MPI, _OUTPUT = (
    "Program",
    "Hosts and processes",
    "V-IPU server and partition",
    "MPI",
    "Output and help",
)


def _count_option(option_name: str, help_group: str, help: str) -> Option:
    return Option(option_name, help_group, help, read=_parse_count, meaning=_COUNT_MEANING)


def _yes_no_option(option_name: str, help_group: str, help: str) -> Option:
    return Option(
        option_name, help_group, help, value="yes|no", read=_parse_yes_no, meaning=_YES_NO_MEANING
    )


def _flag_option(option_name: str, help_group: str, help: str) -> Option:
    """Return an option that means yes without a word, and may also take one."""
    return Option(
        option_name,
        help_group,
        f"{help} (no)",
        value="yes|no",
        read=_parse_yes_no,
        meaning=_YES_NO_MEANING,
        flag="yes",
        optional=True,
    )


def _word_option(
    option_name: str, help_group: str, help: str, value_placeholder: str, **option_fields: Any
) -> Option:
    return Option(
        option_name,
        help_group,
        help,
        value=value_placeholder,
        read=_parse_text,
        meaning="a word",
        **option_fields,
    )


def _file_option(
    option_name: str,
    help_group: str,
    help: str,
    value_placeholder: str = "FILE",
    **option_fields: Any,
) -> Option:
    return Option(
        option_name,
        help_group,
        help,
        value=value_placeholder,
        **{"read": _parse_path, "meaning": "a path", **option_fields},
    )


OPTIONS: tuple[Option, ...] = (
    _count_option("--num-replicas", _LAUNCH, "number of replicas (1)"),
    _count_option(
        "--num-instances",
        _LAUNCH,
        "number of instances, among which replicas are divided evenly (1)",
    ),
    _count_option("--ipus-per-replica", _LAUNCH, "devices for each replica (1)"),
    _count_option(
        "--num-ilds",
        _LAUNCH,
        "link domains that the partition spans; by default the server decides",
    ),
    _file_option(
        "--executable-cache-path",
        _LAUNCH,
        'folder for what instances compile; "" switches the cache off',
        "DIR",
        read=_parse_optional_path,
    ),
    _file_option(
        "--autoreport-dir", _LAUNCH, "write a profile of each instance, for PopVision", "DIR"
    ),
    _yes_no_option(
        "--offline-mode", _LAUNCH, "run without devices, to compile for --offline-target (no)"
    ),
    Option(
        "--offline-target",
        _LAUNCH,
        f"pod to compile for: {_choices_text(tuple(TARGET_SIZES))}",
        value="TARGET",
        read=_parser_of_choices(*TARGET_SIZES),
        meaning=_choices_text(tuple(TARGET_SIZES)),
    ),
    _file_option(
        "--import-config",
        _LAUNCH,
        "read options and program from a file; typed options override it",
    ),
    _file_option("--export-config", _LAUNCH, "write options and program into a file, and launch"),
    _yes_no_option(
        "--overwrite-config",
        _LAUNCH,
        "let --export-config replace a file; else the new name has the time (no)",
    ),
    Option(
        "--timeout",
        _LAUNCH,
        "end the launch when it takes longer",
        value="SECONDS",
        read=_parse_seconds,
        meaning="a time in seconds, above 0",
    ),
    Option(
        "--grace",
        _LAUNCH,
        "time between SIGTERM and SIGKILL for instances (30; 20 in a Slurm job)",
        value="SECONDS",
        read=_parse_non_negative_seconds,
        meaning="a time in seconds",
    ),
    Option(
        "--max-restarts",
        _LAUNCH,
        "how often to restart all instances when one fails (0)",
        read=_parse_index,
        meaning="a whole number",
    ),
    Option(
        "--fence-after",
        _LAUNCH,
        "time without renewal of the lease until the devices are fenced (300)",
        value="SECONDS",
        read=_parse_fence_seconds,
        meaning=f"a time in seconds, from {MIN_FENCE_SECONDS:g} to {MAX_FENCE_SECONDS:g}",
    ),
    _flag_option(
        "--movable",
        _LAUNCH,
        "let the server move the launch to other devices, once all instances can",
    ),
    Option(
        "--move-signal",
        _LAUNCH,
        "signal that tells instances to move (RTMIN+10, used by popdist.onMove)",
        value="SIGNAL",
        read=signal_number,
        meaning="the name of a signal, such as USR1 or RTMIN+10",
    ),
    Option(
        "--move-seconds",
        _LAUNCH,
        f"work that a move loses, which the server weighs ({DEFAULT_MOVE_SECONDS:g})",
        value="SECONDS",
        read=_parse_move_seconds,
        meaning="a time in seconds, above 0, at most a day",
    ),
    _yes_no_option(
        "--pid-namespace", _LAUNCH, "give the instances of a host a PID namespace, if allowed (yes)"
    ),
    Option(
        "--ipc",
        _LAUNCH,
        "shared memory: the host's, or the launch's own, removed with it (host)",
        value="host|private",
        read=_parser_of_choices(HOST_IPC, PRIVATE_IPC),
        meaning=_choices_text((HOST_IPC, PRIVATE_IPC)),
    ),
    Option(
        "--dry-run",
        _LAUNCH,
        "print the plan and stop; =server also asks whether it would be granted",
        value="plan|server",
        read=_parser_of_choices("plan", "server"),
        meaning="no value, plan or server",
        flag="plan",
        optional=True,
    ),
    Option(
        "--host",
        _DEVICES,
        "-H: hosts to run on, such as n[1-4],m2",
        value="HOSTS",
        read=_parse_host_list,
    ),
    _file_option(
        "--hostfile", _DEVICES, "--host-file: file with a host or a range of hosts on each line"
    ),
    Option(
        "--host-subnet",
        _DEVICES,
        "network between hosts; by default the first that all share",
        value="CIDR",
        read=_parse_subnet,
        meaning="a network such as 10.1.0.0/16",
    ),
    _flag_option(
        "--distribute-ssh-key",
        _DEVICES,
        "copy your ssh key to the hosts; asks for the password once",
    ),
    _file_option(
        "--distribute-ssh-key-path", _DEVICES, "folder that contains the key (~/.ssh)", "DIR"
    ),
    Option(
        "--distribute-ssh-key-type",
        _DEVICES,
        "ed25519, ecdsa or rsa; a missing key is made",
        value="TYPE",
        read=_parse_key_type,
        meaning="ed25519, ecdsa or rsa",
    ),
    _flag_option("--synchronise-python-venv", _DEVICES, "copy virtual environments to the hosts"),
    _flag_option("--synchronise-poplar-sdk", _DEVICES, "copy the enabled Poplar SDK to the hosts"),
    _flag_option(
        "--synchronise-code", _DEVICES, "copy the folder in which poprun runs to the hosts"
    ),
    Option(
        "--launcher",
        _DEVICES,
        "what starts instances: mpirun, local or srun (both no MPI), or auto",
        value="HOW",
        read=_parse_launcher,
    ),
    Option(
        "--process-placement",
        _DEVICES,
        "how NUMA nodes and cores are divided among instances (spreadnuma)",
        value="HOW",
        read=_parser_of_choices(*PLACEMENT_STRATEGIES),
        meaning=_choices_text(PLACEMENT_STRATEGIES),
    ),
    Option(
        "--gpu-visibility",
        _DEVICES,
        "in a Slurm job, an instance sees its own GPUs or all of its node (task)",
        value="task|node",
        read=_parser_of_choices("task", "node"),
        meaning="task or node",
    ),
    _yes_no_option(
        "--numa-aware", _DEVICES, "deprecated: use --process-placement spreadnuma or disabled"
    ),
    _yes_no_option(
        "--allow-run-as-root", _DEVICES, "let root launch; without it root gets a warning"
    ),
    _word_option(
        "--vipu-tls-certs",
        _VIPU,
        "folder with ca.pem, cert.pem and key.pem, for TLS (VIPU_CLI_TLS_CERTS)",
        "DIR",
    ),
    _word_option(
        "--vipu-server-host", _VIPU, "name or address of the server (IPUOF_VIPU_API_HOST)", "HOST"
    ),
    Option(
        "--vipu-server-port",
        _VIPU,
        "port of the server (IPUOF_VIPU_API_PORT, or 8090)",
        read=_parse_port,
        meaning="a port from 1 to 65535",
    ),
    Option(
        "--vipu-server-timeout",
        _VIPU,
        "time that a request to the server may take (120)",
        value="SECONDS",
        read=_parse_seconds,
        meaning="a time in seconds, above 0",
    ),
    _word_option(
        "--vipu-partition", _VIPU, "partition to use (IPUOF_VIPU_API_PARTITION_ID)", "NAME"
    ),
    _count_option(
        "--vipu-partition-attempts", _VIPU, "how often to look until the partition is active (1)"
    ),
    _word_option("--vipu-allocation", _VIPU, "allocation to create a partition in", "NAME"),
    _word_option("--vipu-cluster", _VIPU, "deprecated: use --vipu-allocation", "NAME"),
    Option(
        "--sync-type",
        _VIPU,
        "sync type of a new partition, such as ST_POD_NATIVE_DEFAULT",
        value="TYPE",
        read=_parse_sync_type,
        meaning="the name of a sync type",
    ),
    _flag_option("--vipu-wait", _VIPU, "wait in the server's queue until devices are free"),
    _yes_no_option("--update-partition", _VIPU, "replace a partition that does not fit (no)"),
    _yes_no_option(
        "--reset-partition", _VIPU, "reset the partition first (yes, unless it is reconfigurable)"
    ),
    _yes_no_option(
        "--remove-partition", _VIPU, "remove a partition that this launch created (yes)"
    ),
    Option("--mpi-global-args", _MPI, "arguments for mpirun; may be repeated", "ARGS", adds=True),
    Option(
        "--mpi-local-args",
        _MPI,
        "mpirun's arguments for every instance; may be repeated",
        "ARGS",
        adds=True,
    ),
    Option(
        "--instance-mpi-local-args",
        _MPI,
        "mpirun's arguments for instance I; may be repeated",
        value="I:ARGS",
        read=_parse_instance_arguments,
        meaning="an instance, a colon and arguments, such as 0:-x NAME=value",
        adds=True,
    ),
    _yes_no_option("--print-topology", _OUTPUT, "print hosts, domains, instances, replicas (no)"),
    Option(
        "--only-output-from-instance",
        _OUTPUT,
        "print the output of instance I alone, unless another one fails",
        value="I",
        read=_parse_index,
        meaning="the index of an instance",
    ),
    Option(
        "--verbose",
        _OUTPUT,
        "-v prints what poprun does, -vv every detail",
        value="1|2",
        read=lambda text: min(_parse_count(text), 2),
        meaning="1 or 2",
        field="verbosity",
        flag="1",
        optional=True,
    ),
    _flag_option("--debug", _OUTPUT, "as -vv, and print where in Podwright an error comes from"),
    _file_option("--trace", _OUTPUT, "write a timeline, for Perfetto and podwright trace"),
    _file_option(
        "--log-dir", _OUTPUT, "write the output of each instance into two files as well", "DIR"
    ),
    _yes_no_option("--timestamps", _OUTPUT, "print the time in front of each line (no)"),
    Option("--version", _OUTPUT, "print the version", read=_parse_yes_no, flag="yes"),
    Option(
        "--version-format",
        _OUTPUT,
        "text, full-text or full-json; the full formats list all parts",
        value="FORMAT",
        read=_parser_of_choices("text", "full-text", "full-json"),
        meaning="text, full-text or full-json",
    ),
    Option("--help", _OUTPUT, "print this help", read=_parse_yes_no, flag="yes"),
)

OPTIONS = tuple(
    option
    if option.field
    else option._replace(field=option.name.removeprefix("--").replace("-", "_"))
    for option in OPTIONS
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
