"""Prepares hosts before a launch, if requested: distributes keys and copies folders.

`--distribute-ssh-key` and its like are PopRun's (guide, section 2.2.2). Which folders the
`--synchronise-…` options copy, and `--synchronise-code`, are our choice.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from podwright.errors import InvalidRequest

if TYPE_CHECKING:
    from podwright.launcher.instances._output import Output
    from podwright.launcher.options._options import Options

#: The variable for the folder of a Poplar SDK, which the SDK's enable script sets.
SDK_VARIABLE = "POPLAR_SDK_ENABLED"


class Preparation(NamedTuple):
    """key_folder: of the key to distribute to hosts, or empty. key_type: of a key that must be
    made.

    folders: to copy, each to the same path.
    """

    key_folder: str = ""
    key_type: str = ""
    folders: tuple[str, ...] = ()

    def lines(self) -> list[tuple[str, str]]:
        """Return the plan's lines about it."""
        described = []
        if self.key_folder:
            kind = f"id_{self.key_type}, made if missing" if self.key_type else "the best there"
            described.append(("  ssh key", f"distributed from {self.key_folder}: {kind}"))
        return described + [("  copied", folder) for folder in self.folders]


def preparation(
    options: Options, environ: Mapping[str, str], several: bool, by_slurm: bool
) -> Preparation:
    """Return the preparation that a launch requests. Raises InvalidRequest for what is
    impossible.
    """
    key = options.distribute_ssh_key
    for name in ("distribute-ssh-key-path", "distribute-ssh-key-type"):
        if getattr(options, name.replace("-", "_")) and not key:
            raise InvalidRequest(
                f"--{name} says which key is distributed, and none is",
                would_work="Write --distribute-ssh-key too",
            )
    wanted: dict[str, Callable[[Mapping[str, str]], list[str]]] = {
        "synchronise-python-venv": _environments,
        "synchronise-poplar-sdk": _sdk,
        "synchronise-code": _code,
    }
    copies = [name for name in wanted if getattr(options, name.replace("-", "_"))]
    if by_slurm and (key or copies):
        name = copies[0] if copies else "distribute-ssh-key"
        raise InvalidRequest(
            f"--{name} works by ssh, and the nodes of a Slurm job are reached by srun",
            would_work="Use a file system that all nodes have, or sbcast",
        )
    if not several:
        return Preparation()
    folders = dict.fromkeys(folder for name in copies for folder in wanted[name](environ))
    home = os.path.join(environ.get("HOME", "/"), ".ssh")
    return Preparation(
        os.path.abspath(options.distribute_ssh_key_path or home) if key else "",
        options.distribute_ssh_key_type or "",
        tuple(folders),
    )


def _environments(environ: Mapping[str, str]) -> list[str]:
    """Return the environment of Podwright, and the active one if it is another."""
    active = environ.get("VIRTUAL_ENV", "")
    environments = [sys.prefix] if sys.prefix != sys.base_prefix else []
    environments += [active] if os.path.isabs(active) else []
    if not environments:
        raise InvalidRequest(
            "--synchronise-python-venv: no virtual environment is active, and Podwright is in none",
            would_work="Activate one, or leave it out",
        )
    return list(dict.fromkeys(os.path.abspath(folder) for folder in environments))


def _code(environ: Mapping[str, str]) -> list[str]:
    return [os.getcwd()]


def _sdk(environ: Mapping[str, str]) -> list[str]:
    folder = environ.get(SDK_VARIABLE, "")
    if not os.path.isabs(folder):
        raise InvalidRequest(
            f"--synchronise-poplar-sdk: {SDK_VARIABLE} does not say where an SDK is",
            would_work="Enable the SDK first, or leave it out",
        )
    return [folder]


def prepare(
    wanted: Preparation, hosts: tuple[str, ...], environ: Mapping[str, str], output: Output
) -> str:
    """Carry it out. Returns the key that reaches the hosts, if one was distributed. Raises
    HostsUnusable.
    """
    from podwright.hosts import is_here

    far = [host for host in hosts if not is_here(host)]
    key = ""
    if wanted.key_folder and far:
        key = _distribute(wanted, far, environ, output)
    for folder in wanted.folders if far else ():
        _copy(folder, far, environ, output, key)
    return key


def _distribute(
    wanted: Preparation, hosts: list[str], environ: Mapping[str, str], output: Output
) -> str:
    from podwright.hosts import NoKey, distribute_key, find_key

    try:
        key = find_key(wanted.key_folder, wanted.key_type, environ)
    except NoKey as error:
        raise InvalidRequest(
            f"--distribute-ssh-key: {error}",
            would_work="--distribute-ssh-key-type ed25519 makes a key",
        ) from None
    output.flush()
    done, problems = distribute_key(hosts, key, environ, _ask)
    for host in done:
        output.write_line(f"host {host} takes the key {key} from now on")
    _raise_for(problems)
    output.flush()
    return key


def _ask(question: str) -> str | None:
    """Ask the user for a password, without echo; None without a terminal."""
    import getpass

    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return None
    return getpass.getpass(question)


def _copy(
    folder: str, hosts: list[str], environ: Mapping[str, str], output: Output, key: str
) -> None:
    from podwright.hosts import copy_folder, show_percents

    def write(text: str) -> None:
        output.err.add(text.encode())
        output.flush()

    terminal = os.isatty(output.err.handle)
    more = (show_percents(write),) if terminal else ()
    copies = copy_folder(folder, hosts, environ, *more, identity=key)
    if terminal:
        write("\r\x1b[K")
    for copied in copies:
        if not copied.problem:
            output.write_line(f"{folder} is on host {copied.host}: {copied.files} files were sent")
    output.flush()
    _raise_for({c.host: (f"{folder}: {c.problem}", c.todo) for c in copies if c.problem})


def _raise_for(problems: Mapping[str, tuple[str, str]]) -> None:
    from podwright.launcher.hosts._relay_protocol import HostsUnusable

    if not problems:
        return
    hosts = list(problems)
    each = "; ".join(f"host {host}: {problems[host][0]}" for host in hosts[:5])
    more = f"; and {len(hosts) - 5} more" if len(hosts) > 5 else ""
    hint = problems[hosts[0]][1]
    raise HostsUnusable(each + more, would_work=hint, hosts=hosts)
