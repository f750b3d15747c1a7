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
    from podwright.launcher.instances._poprun_output import Output
    from podwright.launcher.options._option_table import Options

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
        plan_lines = []
        if self.key_folder:
            text = f"id_{self.key_type}, made if missing" if self.key_type else "the best there"
            plan_lines.append(("  ssh key", f"distributed from {self.key_folder}: {text}"))
        return plan_lines + [("  copied", folder) for folder in self.folders]


def preparation(
    options: Options, environ: Mapping[str, str], several_hosts: bool, by_slurm: bool
) -> Preparation:
    """Return the preparation that a launch requests. Raises InvalidRequest for what is
    impossible.
    """
    distributes_key = options.distribute_ssh_key
    for option_name in ("distribute-ssh-key-path", "distribute-ssh-key-type"):
        if getattr(options, option_name.replace("-", "_")) and not distributes_key:
            raise InvalidRequest(
                f"--{option_name} says which key is distributed, and none is",
                would_work="Write --distribute-ssh-key too",
            )
    folders_by_option: dict[str, Callable[[Mapping[str, str]], list[str]]] = {
        "synchronise-python-venv": _python_environments,
        "synchronise-poplar-sdk": _sdk_folders,
        "synchronise-code": _working_folder,
    }
    copy_options = [name for name in folders_by_option if getattr(options, name.replace("-", "_"))]
    if by_slurm and (distributes_key or copy_options):
        option_name = copy_options[0] if copy_options else "distribute-ssh-key"
        raise InvalidRequest(
            f"--{option_name} works by ssh, and the nodes of a Slurm job are reached by srun",
            would_work="Use a file system that all nodes have, or sbcast",
        )
    if not several_hosts:
        return Preparation()
    folders = dict.fromkeys(
        folder for name in copy_options for folder in folders_by_option[name](environ)
    )
    ssh_folder = os.path.join(environ.get("HOME", "/"), ".ssh")
    return Preparation(
        os.path.abspath(options.distribute_ssh_key_path or ssh_folder) if distributes_key else "",
        options.distribute_ssh_key_type or "",
        tuple(folders),
    )


def _python_environments(environ: Mapping[str, str]) -> list[str]:
    """Return the environment of Podwright, and the active one if it is another."""
    active_environment = environ.get("VIRTUAL_ENV", "")
    environments = [sys.prefix] if sys.prefix != sys.base_prefix else []
    environments += [active_environment] if os.path.isabs(active_environment) else []
    if not environments:
        raise InvalidRequest(
            "--synchronise-python-venv: no virtual environment is active, and Podwright is in none",
            would_work="Activate one, or leave it out",
        )
    return list(dict.fromkeys(os.path.abspath(folder) for folder in environments))


def _working_folder(environ: Mapping[str, str]) -> list[str]:
    return [os.getcwd()]


def _sdk_folders(environ: Mapping[str, str]) -> list[str]:
    folder = environ.get(SDK_VARIABLE, "")
    if not os.path.isabs(folder):
        raise InvalidRequest(
            f"--synchronise-poplar-sdk: {SDK_VARIABLE} does not say where an SDK is",
            would_work="Enable the SDK first, or leave it out",
        )
    return [folder]


def prepare(
    host_preparation: Preparation,
    hosts: tuple[str, ...],
    environ: Mapping[str, str],
    output: Output,
) -> str:
    """Carry it out. Returns the key that reaches the hosts, if one was distributed. Raises
    HostsUnusable.
    """
    from podwright.hosts import is_here

    remote_hosts = [host for host in hosts if not is_here(host)]
    path = ""
    if host_preparation.key_folder and remote_hosts:
        path = _distribute_ssh_key(host_preparation, remote_hosts, environ, output)
    for folder in host_preparation.folders if remote_hosts else ():
        _copy_folder_to_hosts(folder, remote_hosts, environ, output, path)
    return path


def _distribute_ssh_key(
    host_preparation: Preparation, hosts: list[str], environ: Mapping[str, str], output: Output
) -> str:
    from podwright.hosts import NoKey, distribute_key, find_key

    try:
        key_path = find_key(host_preparation.key_folder, host_preparation.key_type, environ)
    except NoKey as error:
        raise InvalidRequest(
            f"--distribute-ssh-key: {error}",
            would_work="--distribute-ssh-key-type ed25519 makes a key",
        ) from None
    output.flush()
    reached_hosts, problems_by_host = distribute_key(hosts, key_path, environ, _ask_password)
    for host in reached_hosts:
        output.write_line(f"host {host} takes the key {key_path} from now on")
    _raise_unusable_hosts(problems_by_host)
    output.flush()
    return key_path


def _ask_password(question: str) -> str | None:
    """Ask the user for a password, without echo; None without a terminal."""
    import getpass

    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return None
    return getpass.getpass(question)


def _copy_folder_to_hosts(
    folder: str, hosts: list[str], environ: Mapping[str, str], output: Output, key_path: str
) -> None:
    from podwright.hosts import copy_folder, show_percents

    def write(text: str) -> None:
        output.err.add(text.encode())
        output.flush()

    is_terminal = os.isatty(output.err.handle)
    progress_callbacks = (show_percents(write),) if is_terminal else ()
    copy_results = copy_folder(folder, hosts, environ, *progress_callbacks, identity_file=key_path)
    if is_terminal:
        write("\r\x1b[K")
    for copy_result in copy_results:
        if not copy_result.problem:
            output.write_line(
                f"{folder} is on host {copy_result.host}: {copy_result.files} files were sent"
            )
    output.flush()
    _raise_unusable_hosts(
        {
            copy.host: (f"{folder}: {copy.problem}", copy.todo)
            for copy in copy_results
            if copy.problem
        }
    )


def _raise_unusable_hosts(problems_by_host: Mapping[str, tuple[str, str]]) -> None:
    from podwright.launcher.hosts._relay_protocol import HostsUnusable

    if not problems_by_host:
        return
    hosts = list(problems_by_host)
    problems = "; ".join(f"host {host}: {problems_by_host[host][0]}" for host in hosts[:5])
    text = f"; and {len(hosts) - 5} more" if len(hosts) > 5 else ""
    hint = problems_by_host[hosts[0]][1]
    raise HostsUnusable(problems + text, would_work=hint, hosts=hosts)
