"""Every option of poprun: its name, its group in --help, and how its value is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from podwright import plugins
from podwright.errors import InvalidRequest
from podwright.launcher._environment import IPC_HOST, IPC_PRIVATE
from podwright.launcher._instances_told import MOVE_SECONDS, signal_number
from podwright.launcher._offline import TARGETS
from podwright.launcher._placement import STRATEGIES

_MAX = 1 << 20  # replicas, instances: beyond any pod that was ever built
#: Seconds from the last renewal of a lease to the fencing of its devices.
SHORTEST_FENCE, LONGEST_FENCE = 15.0, 3600.0


class Option(NamedTuple):
    """One option. flag: the value it has when it stands alone; optional: it may also take one.

    meaning: what a value must be, in words. adds: each use adds to the ones before.
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
    def read(text: str) -> str:
        word = text.strip().lower()
        if word not in words:
            raise ValueError
        return word

    return read


def _launcher(text: str) -> str:
    ours = ("auto", "mpirun", "srun", "local")
    try:
        return _one_of(*ours)(text)
    except ValueError:
        every = (*ours, *plugins.names(plugins.LAUNCHERS))
        if text.strip().lower() in every:
            return text.strip().lower()
        raise ValueError(_choice(every)) from None


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
    """Alone it means yes; it may also take a word."""
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
    _number("--num-replicas", _LAUNCH, "replicas in all (1)"),
    _number("--num-instances", _LAUNCH, "instances; the replicas are divided evenly (1)"),
    _number("--ipus-per-replica", _LAUNCH, "devices of one replica (1)"),
    _number("--num-ilds", _LAUNCH, "link domains; if not set, the server decides"),
    _file(
        "--executable-cache-path",
        _LAUNCH,
        'of what instances compile; "" for none',
        "DIR",
        read=_path_or_none,
    ),
    _file("--autoreport-dir", _LAUNCH, "profiles of each instance, for PopVision", "DIR"),
    _yes_no("--offline-mode", _LAUNCH, "touch no devices (no)"),
    Option(
        "--offline-target",
        _LAUNCH,
        f"options of {_choice(tuple(TARGETS))}",
        value="TARGET",
        read=_one_of(*TARGETS),
        meaning=_choice(tuple(TARGETS)),
    ),
    _file("--import-config", _LAUNCH, "options and program from a file; what is typed counts more"),
    _file("--export-config", _LAUNCH, "write them into a file, and go on"),
    _yes_no("--overwrite-config", _LAUNCH, "else a name with the time is used (no)"),
    Option(
        "--timeout",
        _LAUNCH,
        "end the launch after that time",
        value="SECONDS",
        read=_seconds,
        meaning="a time in seconds, above 0",
    ),
    Option(
        "--grace",
        _LAUNCH,
        "from asking instances to end to ending them (30; 20 in a Slurm job)",
        value="SECONDS",
        read=_at_least_0,
        meaning="a time in seconds",
    ),
    Option(
        "--max-restarts",
        _LAUNCH,
        "start all again when an instance fails (0)",
        read=_index,
        meaning="a whole number",
    ),
    Option(
        "--fence-after",
        _LAUNCH,
        "fence the devices when nobody has renewed the lease for that time (300)",
        value="SECONDS",
        read=_fence,
        meaning=f"a time in seconds, from {SHORTEST_FENCE:g} to {LONGEST_FENCE:g}",
    ),
    _flag("--movable", _LAUNCH, "go to other devices, to make room, once all instances can"),
    Option(
        "--move-signal",
        _LAUNCH,
        "what tells instances, to which they listen (RTMIN+10; popdist.onMove)",
        value="SIGNAL",
        read=signal_number,
        meaning="the name of a signal, such as USR1 or RTMIN+10",
    ),
    Option(
        "--move-seconds",
        _LAUNCH,
        f"what a move loses, for the server to weigh ({MOVE_SECONDS:g})",
        value="SECONDS",
        read=_move_seconds,
        meaning="a time in seconds, above 0, at most a day",
    ),
    _yes_no("--pid-namespace", _LAUNCH, "of their own for a host's instances, if it may be (yes)"),
    Option(
        "--ipc",
        _LAUNCH,
        "shared memory of the host's, or of the launch's own: it goes with it (host)",
        value="host|private",
        read=_one_of(IPC_HOST, IPC_PRIVATE),
        meaning=_choice((IPC_HOST, IPC_PRIVATE)),
    ),
    Option(
        "--dry-run",
        _LAUNCH,
        "print the plan and stop; with =server ask whether it would be granted",
        value="plan|server",
        read=_one_of("plan", "server"),
        meaning="no value, plan or server",
        flag="plan",
        optional=True,
    ),
    Option(
        "--host",
        _DEVICES,
        "-H: hosts, such as n[1-4],m2; instances divided evenly",
        value="HOSTS",
        read=_hosts,
    ),
    _file("--hostfile", _DEVICES, "--host-file: a host or a range of hosts on each line"),
    Option(
        "--host-subnet",
        _DEVICES,
        "the network between hosts; by default the first that all have",
        value="CIDR",
        read=_subnet,
        meaning="a network such as 10.1.0.0/16",
    ),
    _flag("--distribute-ssh-key", _DEVICES, "by ssh-copy-id; one question for the password"),
    _file("--distribute-ssh-key-path", _DEVICES, "folder of the key (~/.ssh)", "DIR"),
    Option(
        "--distribute-ssh-key-type",
        _DEVICES,
        "ed25519, ecdsa or rsa; made if it is not there",
        value="TYPE",
        read=_key_type,
        meaning="ed25519, ecdsa or rsa",
    ),
    _flag("--synchronise-python-venv", _DEVICES, "copy virtual environments to the hosts"),
    _flag("--synchronise-poplar-sdk", _DEVICES, "copy the SDK that is enabled"),
    _flag("--synchronise-code", _DEVICES, "copy the folder in which poprun runs"),
    Option(
        "--launcher",
        _DEVICES,
        "mpirun, local (no MPI), srun (no MPI, in a Slurm job) or auto",
        value="HOW",
        read=_launcher,
    ),
    Option(
        "--process-placement",
        _DEVICES,
        "NUMA nodes or cores of each instance (spreadnuma)",
        value="HOW",
        read=_one_of(*STRATEGIES),
        meaning=_choice(STRATEGIES),
    ),
    Option(
        "--gpu-visibility",
        _DEVICES,
        "GPUs of a Slurm job: an instance sees its own, or its node's (task)",
        value="task|node",
        read=_one_of("task", "node"),
        meaning="task or node",
    ),
    _yes_no("--numa-aware", _DEVICES, "deprecated: --process-placement spreadnuma or disabled"),
    _yes_no("--allow-run-as-root", _DEVICES, "lets root launch; if not set, with a warning"),
    _word(
        "--vipu-tls-certs",
        _VIPU,
        "folder with ca.pem, cert.pem and key.pem, for TLS (VIPU_CLI_TLS_CERTS)",
        "DIR",
    ),
    _word("--vipu-server-host", _VIPU, "its name or address (IPUOF_VIPU_API_HOST)", "HOST"),
    Option(
        "--vipu-server-port",
        _VIPU,
        "its port (IPUOF_VIPU_API_PORT, or 8090)",
        read=_port,
        meaning="a port from 1 to 65535",
    ),
    Option(
        "--vipu-server-timeout",
        _VIPU,
        "how long a request may take (120)",
        value="SECONDS",
        read=_seconds,
        meaning="a time in seconds, above 0",
    ),
    _word("--vipu-partition", _VIPU, "its name (IPUOF_VIPU_API_PARTITION_ID)", "NAME"),
    _number("--vipu-partition-attempts", _VIPU, "tries until it is active (1)"),
    _word("--vipu-allocation", _VIPU, "allocation to create a partition in", "NAME"),
    _word("--vipu-cluster", _VIPU, "deprecated: --vipu-allocation", "NAME"),
    Option(
        "--sync-type",
        _VIPU,
        "of a partition that is created, such as ST_POD_NATIVE_DEFAULT",
        value="TYPE",
        read=_sync,
        meaning="the name of a sync type",
    ),
    _flag("--vipu-wait", _VIPU, "wait in the server's line until devices are free"),
    _yes_no("--update-partition", _VIPU, "replace one that does not fit (no)"),
    _yes_no("--reset-partition", _VIPU, "reset it before the run (unless reconfigurable)"),
    _yes_no("--remove-partition", _VIPU, "remove one that this run created (yes)"),
    Option("--mpi-global-args", _MPI, "for mpirun, once; may be repeated", "ARGS", adds=True),
    Option("--mpi-local-args", _MPI, "for each instance; may be repeated", "ARGS", adds=True),
    Option(
        "--instance-mpi-local-args",
        _MPI,
        "for instance I; may be repeated",
        value="I:ARGS",
        read=_for_instance,
        meaning="an instance, a colon and arguments, such as 0:-x NAME=value",
        adds=True,
    ),
    _yes_no("--print-topology", _OUTPUT, "print hosts, domains, instances, replicas (no)"),
    Option(
        "--only-output-from-instance",
        _OUTPUT,
        "silence the others, unless one fails",
        value="I",
        read=_index,
        meaning="the index of an instance",
    ),
    Option(
        "--verbose",
        _OUTPUT,
        "-v tells what is done, -vv every detail",
        value="1|2",
        read=lambda text: min(_count(text), 2),
        meaning="1 or 2",
        field="verbosity",
        flag="1",
        optional=True,
    ),
    _flag("--debug", _OUTPUT, "-vv, and where in Podwright an error comes from"),
    _file("--trace", _OUTPUT, "the launch as a timeline, for Perfetto and podwright trace"),
    _file("--log-dir", _OUTPUT, "two files for each instance, as well", "DIR"),
    _yes_no("--timestamps", _OUTPUT, "put the time in front of each line (no)"),
    Option("--version", _OUTPUT, "print the version", read=_boolean, flag="yes"),
    Option(
        "--version-format",
        _OUTPUT,
        "text, full-text or full-json; full has all parts",
        value="FORMAT",
        read=_one_of("text", "full-text", "full-json"),
        meaning="text, full-text or full-json",
    ),
    Option("--help", _OUTPUT, "print this", read=_boolean, flag="yes"),
)

OPTIONS = tuple(
    o if o.field else o._replace(field=o.name.removeprefix("--").replace("-", "_")) for o in OPTIONS
)
BY_NAME = {option.name: option for option in OPTIONS}
# PopRun's documents do not show the name of the option for a hosts file: both are known.
BY_NAME["--host-file"] = BY_NAME["--hostfile"]
SHORT = {"-H": BY_NAME["--host"], "-h": BY_NAME["--help"]}


def help_text() -> str:
    """What --help prints: the options in their groups."""
    lines = ["usage: poprun [options] program [arguments of the program]", ""]
    for group in (_LAUNCH, _DEVICES, _VIPU, _MPI, _OUTPUT):
        lines.append(f"{group}:")
        for option in OPTIONS:
            if option.group == group:
                value = "" if option.flag else f" {option.value}"
                lines.append(f"  {option.name + value:<36} {option.help}")
        lines.append("")
    lines.append("An option may be shortened as long as it is the only one that begins so.")
    return "\n".join(lines)
