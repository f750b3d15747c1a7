"""`podwright slurm configure` and `build`: configure Slurm for devices, and undo that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from podwright.cli.shared import _option_table as opt
from podwright.cli.shared._verb import Verb
from podwright.cli.slurm import _gpus as _slurm_gpus
from podwright.cli.slurm._configure_options import NATIVE, ConfigureOptions


class BuildOptions(opt.OptionTable):
    """The options of `build`."""

    into = opt.text("", "DIR", NATIVE)
    lint = opt.flag("only what `configure --gpus --lint` needs: a C compiler will do")
    include = opt.text("another Slurm's headers than those of the Slurm on PATH", "DIR")


def _configure(arguments: ConfigureOptions) -> int:
    if arguments.gpus is not None:
        return _slurm_gpus.configure(arguments)
    from pathlib import Path

    from podwright.guests.slurm import setup
    from podwright.slurm.site.changes import as_diff, carry_out, summary

    places = setup.NativePlaces(
        slurm_conf=Path(arguments.slurm_conf).absolute(),
        folder=Path(arguments.folder).absolute(),
        native=Path(arguments.native).absolute(),
    )
    if arguments.undo:
        plan = setup.undo(places)
    else:
        site = _site(arguments)
        plan = setup.native(places, site, trusted=_trusted(arguments, site))
    print(as_diff(plan) if arguments.diff else summary(plan), end="")
    if not (arguments.undo or arguments.write):
        lines = "" if arguments.diff else " --diff shows each line;"
        print(f"Nothing was changed.{lines} --write makes these changes.")
        return 0
    carry_out(plan)
    print("Written. Restart slurmctld, and `scontrol reconfigure` for the nodes.")
    if arguments.undo:
        print("Before that end `podwright slurm serve`, and take back what it told Slurm:")
        print("`scontrol delete reservationname=podwright`.")
    return 0


def _site(arguments: ConfigureOptions) -> Any:
    from pathlib import Path

    from podwright.client import TIMEOUT, Address
    from podwright.errors import InvalidRequest
    from podwright.guests.slurm import setup
    from podwright.guests.slurm.hooks import addresses, reach
    from podwright.guests.slurm.service import Site

    mode = arguments.mode
    if mode == "host-mapping" and not arguments.mapping:
        raise InvalidRequest("host mapping needs a file", would_work="--mapping FILE")
    if mode not in ("native", "plugin") and arguments.on_failure == "relocate":
        raise InvalidRequest(
            f"under --mode {mode} a job's devices are where they are",
            operation="--on-failure relocate",
            would_work="--on-failure stay or requeue" if mode == "shared" else "leave it out",
        )
    conf = Path(arguments.slurm_conf).absolute()
    changes: dict[str, Any] = {}
    at = addresses(arguments.server) or (Address("localhost"),)
    if arguments.server_config and not arguments.server.startswith("tcp:"):
        raise InvalidRequest(
            "by the Unix socket the kernel says who calls",
            operation=f"--server-config {arguments.server_config}",
            would_work="--server tcp:HOST:PORT with it",
        )
    setup.check_server(conf, arguments.server)
    door = {
        "server": arguments.server,
        "credentials": str(Path(arguments.server_config).absolute())
        if arguments.server_config
        else "",
        "munge_socket": arguments.munge_socket or setup.munge_socket(conf),
    }
    port = arguments.port
    with reach(Site(**door), TIMEOUT) as client:
        if not port:
            # A Unix socket has no port, and a server may use any, so the server is asked for its
            # own.
            own = 0 if addresses(arguments.server) else client.get_server_info().port
            port = own or at[0].port
        if mode == "host-mapping":
            path = Path(arguments.mapping)
            try:
                text = path.read_text()
            except (OSError, UnicodeDecodeError) as error:
                reason = getattr(error, "strerror", None) or "it is no text"
                raise InvalidRequest(f"{path}: {reason}", operation="read the mapping") from None
            changes["hosts"] = setup.mapping(client, text, str(path))
        elif mode == "static":
            changes["partitions"] = setup.shelf(client, arguments.partition)
        elif mode == "shared":
            changes["shared"], pod = setup.shared(client, arguments.partition)
            changes["pods"] = (pod,)
        else:
            changes["pods"] = setup.survey(client, arguments.pod)
    return Site(
        mode=mode,
        socket=arguments.hooks_socket,
        host=setup.server_host(
            Path(arguments.slurm_conf),
            arguments.host,
            at[0].host if addresses(arguments.server) else None,
        ),
        window_s=setup.window(Path(arguments.slurm_conf)),
        port=port,
        fallen=arguments.on_failure,
        room_s=arguments.room_after,
        default_ipus=_default_ipus(arguments, changes.get("pods", ())),
        listen=arguments.listen or setup.far_door(conf),
        key=_key(arguments),
        slurm_user=setup.slurm_user(conf),
        metrics=arguments.metrics,
        **door,
        **changes,
    )


def _key(arguments: ConfigureOptions) -> str:
    """Return the file of the key; empty when MUNGE is used instead."""
    from pathlib import Path

    from podwright.guests.slurm import setup

    if arguments.key:
        return str(Path(arguments.key).absolute())
    if not setup.without_munge(Path(arguments.slurm_conf)):
        return ""
    return str(Path(arguments.folder).absolute() / "hook.key")


def _default_ipus(arguments: ConfigureOptions, pods: Sequence[Any]) -> int:
    """Return the devices of a job that names none; -1: such a job is refused. Raises
    InvalidRequest.
    """
    from podwright.errors import InvalidRequest

    text = arguments.default_ipus
    if text is None:
        return -1 if arguments.mode == "shared" else 0
    if text == "ask":
        return -1
    action = f"--default-ipus {text}"
    if not pods:
        raise InvalidRequest(
            f"under --mode {arguments.mode} jobs do not ask by --ipus",
            operation=action,
            would_work="leave it out",
        )
    size = int(text) if text.isdecimal() else -1
    # In other modes, a job's tasks learn from the option itself that they have a partition.
    sizes = [1 << order for order in pods[0].orders] if arguments.mode == "shared" else []
    if size not in (0, *sizes):
        raise InvalidRequest(
            f"under --mode {arguments.mode} no job could have that",
            operation=action,
            would_work=f"ask, 0 or one of {', '.join(map(str, sizes))}" if sizes else "ask or 0",
        )
    return size


def _trusted(arguments: ConfigureOptions, site: Any) -> tuple[int, ...]:
    """Return who may change a job's Podwright fields: root, SlurmUser, and the service's user."""
    import pwd

    from podwright.errors import InvalidRequest
    from podwright.guests.slurm.hooks import slurm_uid

    uids = {0, slurm_uid(site)}
    if arguments.slurm_user:
        try:
            uids.add(pwd.getpwnam(arguments.slurm_user).pw_uid)
        except KeyError:
            raise InvalidRequest(f"there is no user {arguments.slurm_user}") from None
    return tuple(sorted(uids))


def _build(arguments: BuildOptions) -> int:
    from pathlib import Path

    if arguments.lint:
        from podwright.gpu import submission

        print(submission.build(Path(arguments.into)))
        return 0
    from podwright.guests.slurm.setup import build

    for path in build(Path(arguments.into), include=arguments.include):
        print(path)
    return 0


VERBS = (
    Verb(
        "configure",
        ConfigureOptions,
        _configure,
        help="set up an unmodified Slurm",
        description="Shows what setting Slurm up would change; --write does it, --undo takes it "
        "back. Scripts that the site has are kept and run as before.",
    ),
    Verb(
        "build",
        BuildOptions,
        _build,
        help="compile the plugin and the hook",
        description="Compiles the SPANK plugin and the hook against this machine's own Slurm.",
    ),
)
