"""Every option of poprun: its name, its group in --help, and how its value is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from podwright import plugins
from podwright.errors import InvalidRequest
from podwright.launcher.options._environment import IPC_HOST, IPC_PRIVATE
from podwright.launcher.options._move_notice import MOVE_SECONDS, signal_number
from podwright.launcher.options._offline import TARGETS
from podwright.launcher.options._placement import STRATEGIES

_MAX = 1 << 20  # The limit of replicas and instances, beyond any pod that was ever built.
#: Seconds from the last renewal of a lease to the fencing of its devices.
SHORTEST_FENCE, LONGEST_FENCE = 15.0, 3600.0


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


def _count(text: str) -> int:
    return _within(text, 1, _MAX)


def _index(text: str) -> int:
    return _within(text, 0, _MAX)


def _port(text: str) -> int:
    return _within(text, 1, 65535)


def _within(text: str, low: int, high: int) -> int:
    text = text.strip()
    if not (text.isascii() and text.isdigit() and len(text) < 12 and low <= int(text) <= high):
        raise ValueError
    return int(text)


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value <= 1e7:
        raise ValueError
    return value


def _fence(text: str) -> float:
    value = float(text)
    if not SHORTEST_FENCE <= value <= LONGEST_FENCE:
        raise ValueError
    return value


def _boolean(text: str) -> bool:
    word = text.strip().lower()
    if word in ("yes", "1", "on", "true"):
        return True
    if word in ("no", "0", "off", "false"):
        return False
    raise ValueError


def _text(text: str) -> str:
    if not text.strip() or "\0" in text:
        raise ValueError
    return text.strip()


def _hosts(text: str) -> str:
    if not text.strip():
        raise ValueError("names of hosts")
    if text.strip().endswith(","):
        raise ValueError("a list without blanks, or in quotes (--host a,b or --host 'a, b')")
    return _text(text)


def _for_instance(text: str) -> tuple[int, str]:
    number, colon, arguments = text.partition(":")
    if not colon:
        raise ValueError
    return _index(number), arguments


def _path(text: str) -> str:
    if not text or "\0" in text:
        raise ValueError
    return text


def _path_or_none(text: str) -> str:
    return _path(text) if text else ""


def _move_seconds(text: str) -> float:
    value = _seconds(text)
    if value > 86400:
        raise ValueError
    return value


def _at_least_0(text: str) -> float:
    return 0.0 if float(text) == 0 else _seconds(text)


def _subnet(text: str) -> str:
    import ipaddress  # only where there is one to read

    return str(ipaddress.ip_network(text.strip(), strict=False))


def _key_type(text: str) -> str:
    word = text.strip().lower()
    if word == "dsa":
        raise InvalidRequest(
            "--distribute-ssh-key-type=dsa: OpenSSH no longer takes or makes such keys",
            would_work="Use ed25519, ecdsa or rsa",
        )
    return _one_of("ed25519", "ecdsa", "rsa")(word)


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        word = text.strip().lower()
        if word not in words:
            raise ValueError
        return word

    return parse


def _launcher(text: str) -> str:
    ours = ("auto", "mpirun", "srun", "local")
    try:
        return _one_of(*ours)(text)
    except ValueError:
        launchers = (*ours, *plugins.names(plugins.LAUNCHERS))
        if text.strip().lower() in launchers:
            return text.strip().lower()
        raise ValueError(_choice(launchers)) from None


def _choice(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _sync(text: str) -> str:
    word = text.strip().upper().removeprefix("ST_")
    if not word.replace("_", "").isalnum():
        raise ValueError
    return word


_COUNT = "a whole number above 0"
_YES = "yes or no (1 or 0, on or off, true or false)"
_LAUNCH, _DEVICES, _VIPU, _MPI, _OUTPUT = (
    "Program",
    "Hosts and processes",
    "V-IPU server and partition",
    "MPI",
    "Output and help",
)


def _number(name: str, group: str, help: str) -> Option:
    return Option(name, group, help, read=_count, meaning=_COUNT)


def _yes_no(name: str, group: str, help: str) -> Option:
    return Option(name, group, help, value="yes|no", read=_boolean, meaning=_YES)


def _flag(name: str, group: str, help: str) -> Option:
    """Return an option that means yes without a word, and may also take one."""
    return Option(
        name,
        group,
        f"{help} (no)",
        value="yes|no",
        read=_boolean,
        meaning=_YES,
        flag="yes",
        optional=True,
    )


def _word(name: str, group: str, help: str, value: str, **more: Any) -> Option:
    return Option(name, group, help, value=value, read=_text, meaning="a word", **more)


def _file(name: str, group: str, help: str, value: str = "FILE", **more: Any) -> Option:
    return Option(name, group, help, value=value, **{"read": _path, "meaning": "a path", **more})


OPTIONS: tuple[Option, ...] = (
    _number("--num-replicas", _LAUNCH, "number of replicas (1)"),
    _number(
        "--num-instances",
        _LAUNCH,
        "number of instances, among which replicas are divided evenly (1)",
    ),
    _number("--ipus-per-replica", _LAUNCH, "devices for each replica (1)"),
    _number(
        "--num-ilds",
        _LAUNCH,
        "link domains that the partition spans; by default the server decides",
    ),
    _file(
        "--executable-cache-path",
        _LAUNCH,
        'folder for what instances compile; "" switches the cache off',
        "DIR",
        read=_path_or_none,
    ),
    _file("--autoreport-dir", _LAUNCH, "write a profile of each instance, for PopVision", "DIR"),
    _yes_no("--offline-mode", _LAUNCH, "run without devices, to compile for --offline-target (no)"),
    Option(
        "--offline-target",
        _LAUNCH,
        f"pod to compile for: {_choice(tuple(TARGETS))}",
        value="TARGET",
        read=_one_of(*TARGETS),
        meaning=_choice(tuple(TARGETS)),
    ),
    _file(
        "--import-config",
        _LAUNCH,
        "read options and program from a file; typed options override it",
    ),
    _file("--export-config", _LAUNCH, "write options and program into a file, and launch"),
    _yes_no(
        "--overwrite-config",
        _LAUNCH,
        "let --export-config replace a file; else the new name has the time (no)",
    ),
    Option(
        "--timeout",
        _LAUNCH,
        "end the launch when it takes longer",
        value="SECONDS",
        read=_seconds,
        meaning="a time in seconds, above 0",
    ),
    Option(
        "--grace",
        _LAUNCH,
        "time between SIGTERM and SIGKILL for instances (30; 20 in a Slurm job)",
        value="SECONDS",
        read=_at_least_0,
        meaning="a time in seconds",
    ),
    Option(
        "--max-restarts",
        _LAUNCH,
        "how often to restart all instances when one fails (0)",
        read=_index,
        meaning="a whole number",
    ),
    Option(
        "--fence-after",
        _LAUNCH,
        "time without renewal of the lease until the devices are fenced (300)",
        value="SECONDS",
        read=_fence,
        meaning=f"a time in seconds, from {SHORTEST_FENCE:g} to {LONGEST_FENCE:g}",
    ),
    _flag(
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
        f"work that a move loses, which the server weighs ({MOVE_SECONDS:g})",
        value="SECONDS",
        read=_move_seconds,
        meaning="a time in seconds, above 0, at most a day",
    ),
    _yes_no(
        "--pid-namespace", _LAUNCH, "give the instances of a host a PID namespace, if allowed (yes)"
    ),
    Option(
        "--ipc",
        _LAUNCH,
        "shared memory: the host's, or the launch's own, removed with it (host)",
        value="host|private",
        read=_one_of(IPC_HOST, IPC_PRIVATE),
        meaning=_choice((IPC_HOST, IPC_PRIVATE)),
    ),
    Option(
        "--dry-run",
        _LAUNCH,
        "print the plan and stop; =server also asks whether it would be granted",
        value="plan|server",
        read=_one_of("plan", "server"),
        meaning="no value, plan or server",
        flag="plan",
        optional=True,
    ),
    Option(
        "--host",
        _DEVICES,
        "-H: hosts to run on, such as n[1-4],m2",
        value="HOSTS",
        read=_hosts,
    ),
    _file("--hostfile", _DEVICES, "--host-file: file with a host or a range of hosts on each line"),
    Option(
        "--host-subnet",
        _DEVICES,
        "network between hosts; by default the first that all share",
        value="CIDR",
        read=_subnet,
        meaning="a network such as 10.1.0.0/16",
    ),
    _flag(
        "--distribute-ssh-key",
        _DEVICES,
        "copy your ssh key to the hosts; asks for the password once",
    ),
    _file("--distribute-ssh-key-path", _DEVICES, "folder that contains the key (~/.ssh)", "DIR"),
    Option(
        "--distribute-ssh-key-type",
        _DEVICES,
        "ed25519, ecdsa or rsa; a missing key is made",
        value="TYPE",
        read=_key_type,
        meaning="ed25519, ecdsa or rsa",
    ),
    _flag("--synchronise-python-venv", _DEVICES, "copy virtual environments to the hosts"),
    _flag("--synchronise-poplar-sdk", _DEVICES, "copy the enabled Poplar SDK to the hosts"),
    _flag("--synchronise-code", _DEVICES, "copy the folder in which poprun runs to the hosts"),
    Option(
        "--launcher",
        _DEVICES,
        "what starts instances: mpirun, local or srun (both no MPI), or auto",
        value="HOW",
        read=_launcher,
    ),
    Option(
        "--process-placement",
        _DEVICES,
        "how NUMA nodes and cores are divided among instances (spreadnuma)",
        value="HOW",
        read=_one_of(*STRATEGIES),
        meaning=_choice(STRATEGIES),
    ),
    Option(
        "--gpu-visibility",
        _DEVICES,
        "in a Slurm job, an instance sees its own GPUs or all of its node (task)",
        value="task|node",
        read=_one_of("task", "node"),
        meaning="task or node",
    ),
    _yes_no("--numa-aware", _DEVICES, "deprecated: use --process-placement spreadnuma or disabled"),
    _yes_no("--allow-run-as-root", _DEVICES, "let root launch; without it root gets a warning"),
    _word(
        "--vipu-tls-certs",
        _VIPU,
        "folder with ca.pem, cert.pem and key.pem, for TLS (VIPU_CLI_TLS_CERTS)",
        "DIR",
    ),
    _word(
        "--vipu-server-host", _VIPU, "name or address of the server (IPUOF_VIPU_API_HOST)", "HOST"
    ),
    Option(
        "--vipu-server-port",
        _VIPU,
        "port of the server (IPUOF_VIPU_API_PORT, or 8090)",
        read=_port,
        meaning="a port from 1 to 65535",
    ),
    Option(
        "--vipu-server-timeout",
        _VIPU,
        "time that a request to the server may take (120)",
        value="SECONDS",
        read=_seconds,
        meaning="a time in seconds, above 0",
    ),
    _word("--vipu-partition", _VIPU, "partition to use (IPUOF_VIPU_API_PARTITION_ID)", "NAME"),
    _number(
        "--vipu-partition-attempts", _VIPU, "how often to look until the partition is active (1)"
    ),
    _word("--vipu-allocation", _VIPU, "allocation to create a partition in", "NAME"),
    _word("--vipu-cluster", _VIPU, "deprecated: use --vipu-allocation", "NAME"),
    Option(
        "--sync-type",
        _VIPU,
        "sync type of a new partition, such as ST_POD_NATIVE_DEFAULT",
        value="TYPE",
        read=_sync,
        meaning="the name of a sync type",
    ),
    _flag("--vipu-wait", _VIPU, "wait in the server's queue until devices are free"),
    _yes_no("--update-partition", _VIPU, "replace a partition that does not fit (no)"),
    _yes_no(
        "--reset-partition", _VIPU, "reset the partition first (yes, unless it is reconfigurable)"
    ),
    _yes_no("--remove-partition", _VIPU, "remove a partition that this launch created (yes)"),
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
        read=_for_instance,
        meaning="an instance, a colon and arguments, such as 0:-x NAME=value",
        adds=True,
    ),
    _yes_no("--print-topology", _OUTPUT, "print hosts, domains, instances, replicas (no)"),
    Option(
        "--only-output-from-instance",
        _OUTPUT,
        "print the output of instance I alone, unless another one fails",
        value="I",
        read=_index,
        meaning="the index of an instance",
    ),
    Option(
        "--verbose",
        _OUTPUT,
        "-v prints what poprun does, -vv every detail",
        value="1|2",
        read=lambda text: min(_count(text), 2),
        meaning="1 or 2",
        field="verbosity",
        flag="1",
        optional=True,
    ),
    _flag("--debug", _OUTPUT, "as -vv, and print where in Podwright an error comes from"),
    _file("--trace", _OUTPUT, "write a timeline, for Perfetto and podwright trace"),
    _file("--log-dir", _OUTPUT, "write the output of each instance into two files as well", "DIR"),
    _yes_no("--timestamps", _OUTPUT, "print the time in front of each line (no)"),
    Option("--version", _OUTPUT, "print the version", read=_boolean, flag="yes"),
    Option(
        "--version-format",
        _OUTPUT,
        "text, full-text or full-json; the full formats list all parts",
        value="FORMAT",
        read=_one_of("text", "full-text", "full-json"),
        meaning="text, full-text or full-json",
    ),
    Option("--help", _OUTPUT, "print this help", read=_boolean, flag="yes"),
)

OPTIONS = tuple(
    option
    if option.field
    else option._replace(field=option.name.removeprefix("--").replace("-", "_"))
    for option in OPTIONS
)
BY_NAME = {option.name: option for option in OPTIONS}
# PopRun's documents do not show the name of the option for a hosts file: both are known.
BY_NAME["--host-file"] = BY_NAME["--hostfile"]
SHORT = {"-H": BY_NAME["--host"], "-h": BY_NAME["--help"]}


def help_text() -> str:
    """Return the output of --help: the options in their groups."""
    lines = ["usage: poprun [options] program [arguments of the program]", ""]
    for group in (_LAUNCH, _DEVICES, _VIPU, _MPI, _OUTPUT):
        lines.append(f"{group}:")
        for option in OPTIONS:
            if option.group == group:
                value = "" if option.flag else f" {option.value}"
                lines.append(f"  {option.name + value:<36} {option.help}")
        lines.append("")
    lines.append("A shortened option works as long as only one option begins like it.")
    return "\n".join(lines)
