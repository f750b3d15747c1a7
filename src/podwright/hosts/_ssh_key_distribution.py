"""Distributing a user's key to hosts, after asking once for the password that all of them accept.

ssh-copy-id does the work. The password reaches its ssh through a pipe in a private folder, so it is
in no argument, no environment and no file. It is given only to prompts for a password. A host whose
own key is not known yet is refused, so an impostor never receives the password.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence

from podwright.hosts._errors import HostsError
from podwright.hosts._local_host_facts import find_program
from podwright.hosts._remote_commands import ask_all
from podwright.hosts._ssh import SSH_CONNECT_TIMEOUT_S, explain, ssh_command

#: The kinds of keys that OpenSSH still accepts, the best one first.
KEY_TYPES = ("ed25519", "ecdsa", "rsa")
#: Seconds that one host may take, for all steps together.
_HOST_TIME_LIMIT_S = 60.0
_KEY_REFUSED_TEXT = "it refuses the key"

_ASKPASS_SCRIPT = """\
#!/bin/sh
case $1 in
*assword*) exec cat "${0%/*}/pipe" ;;
esac
exit 1
"""


class NoKey(HostsError):
    """There is no key to distribute, or none can be made."""


def find_key(key_folder: str, key_type: str, environ: Mapping[str, str]) -> str:
    """Return the path of a private key in a folder.

    key_type: a key of this kind, which is made if it does not exist; "": the best existing key.
    Raises NoKey.
    """
    if not key_type:
        for known_type in KEY_TYPES:
            key_path = os.path.join(key_folder, f"id_{known_type}")
            if os.path.isfile(f"{key_path}.pub"):
                return key_path
        raise NoKey(f"there is no key in {key_folder}")
    key_path = os.path.join(key_folder, f"id_{key_type}")
    if os.path.isfile(f"{key_path}.pub"):
        return key_path
    import subprocess  # 10 ms, which only launches that distribute keys pay

    keygen_path = find_program("ssh-keygen", environ)
    if keygen_path is None:
        raise NoKey("there is no ssh-keygen on PATH")
    try:
        os.makedirs(key_folder, 0o700, exist_ok=True)
    except OSError as error:
        raise NoKey(f"{key_folder}: {error.strerror}") from None
    keygen_result = subprocess.run(
        [keygen_path, "-q", "-t", key_type, "-N", "", "-f", key_path],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if keygen_result.returncode:
        raise NoKey(f"ssh-keygen: {keygen_result.stderr.strip() or keygen_result.stdout.strip()}")
    return key_path


def distribute_key(
    hosts: Sequence[str],
    key_path: str,
    environ: Mapping[str, str],
    ask_password: Callable[[str], str | None],
) -> tuple[list[str], dict[str, tuple[str, str]]]:
    """Put a key onto the hosts that do not accept it yet.

    ask_password: asks the user for a password with the given words; returns None if there is no
    terminal. Returns the hosts that have received the key, and, for each host that cannot be
    reached, the problem and what to do.
    """
    problems = _problems_by_host(hosts, key_path, environ)
    hosts_without_key = [
        host for host, (problem, _) in problems.items() if problem == _KEY_REFUSED_TEXT
    ]
    if not hosts_without_key:
        return [], problems
    copy_id_path = find_program("ssh-copy-id", environ)
    if copy_id_path is None:
        return [], problems | dict.fromkeys(
            hosts_without_key, ("there is no ssh-copy-id here", "apt-get install openssh-client")
        )
    hosts_text = ", ".join(hosts_without_key[:8]) + (", …" if len(hosts_without_key) > 8 else "")
    password = ask_password(f"Password on {hosts_text}: ")
    if password is None:
        no_terminal_problem = (
            "it wants a password, and there is no terminal to ask at",
            "Start at a terminal",
        )
        return [], problems | dict.fromkeys(hosts_without_key, no_terminal_problem)
    # ssh-copy-id works in this folder, and does not make it.
    with contextlib.suppress(OSError):
        os.makedirs(os.path.join(environ.get("HOME", "/"), ".ssh"), 0o700, exist_ok=True)
    hosts_with_key = []
    with _askpass_variables(password) as askpass_variables:
        for host in hosts_without_key:
            problem = _copy_key_to_host(
                copy_id_path, host, key_path, {**environ, **askpass_variables}
            )
            if problem:
                problems[host] = problem
            else:
                del problems[host]
                hosts_with_key.append(host)
    return hosts_with_key, problems


def _problems_by_host(
    hosts: Sequence[str], key_path: str, environ: Mapping[str, str]
) -> dict[str, tuple[str, str]]:
    """Return the problem of each host that does not accept the key.

    All are asked at the same time.
    """
    commands = {
        host: ssh_command(host, ["true"], environ, identity_file=key_path) for host in hosts
    }
    no_ssh_problem = ("there is no ssh here", "apt-get install openssh-client")
    problems = {host: no_ssh_problem for host, command in commands.items() if command is None}
    ssh_commands = {host: command for host, command in commands.items() if command is not None}
    for host, remote_answer in zip(
        ssh_commands,
        ask_all(list(ssh_commands.values()), environ, 2.0 * SSH_CONNECT_TIMEOUT_S),
        strict=True,
    ):
        if remote_answer.code != 0:
            problems[host] = explain(host, remote_answer.err, remote_answer.code)
    return problems


def _copy_key_to_host(
    copy_id_path: str, host: str, key_path: str, environ: Mapping[str, str]
) -> tuple[str, str] | None:
    """Put the key onto one host. Return the problem and what to do, or None."""
    import subprocess

    ssh_options = [f"ConnectTimeout={SSH_CONNECT_TIMEOUT_S}", "NumberOfPasswordPrompts=1"]
    argv = [
        copy_id_path,
        "-i",
        f"{key_path}.pub",
        *(argument for option in ssh_options for argument in ("-o", option)),
        host,
    ]
    try:
        copy_result = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env=dict(environ),
            timeout=_HOST_TIME_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return explain(host, "", None)
    if copy_result.returncode == 0:
        return None
    problem, hint = explain(host, copy_result.stderr, copy_result.returncode)
    if problem == _KEY_REFUSED_TEXT:
        return "it refuses the password", f"Try it: ssh {shlex.quote(host)}"
    return problem, hint


@contextlib.contextmanager
def _askpass_variables(password: str) -> Iterator[dict[str, str]]:
    """Yield variables that make ssh ask this process. Each prompt for a password gets this one."""
    import shutil
    import tempfile
    import threading

    folder = tempfile.mkdtemp(prefix="podwright-askpass-")
    script_path, pipe_path = os.path.join(folder, "ask"), os.path.join(folder, "pipe")
    os.mkfifo(pipe_path, 0o600)
    descriptor = os.open(script_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700)
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(_ASKPASS_SCRIPT)
    is_finished = False

    def answer() -> None:
        while True:
            # A reader that has gone again takes no answer. The next reader still gets its own.
            with (
                contextlib.suppress(BrokenPipeError),
                open(pipe_path, "w", encoding="utf-8") as pipe_file,
            ):
                if is_finished:
                    return
                # Each prompt has a pipe of its own: if it were reopened, it could meet the same
                # reader again.
                os.mkfifo(f"{pipe_path}.next", 0o600)
                os.replace(f"{pipe_path}.next", pipe_path)
                pipe_file.write(f"{password}\n")

    thread = threading.Thread(target=answer, name="askpass", daemon=True)
    thread.start()
    try:
        # OpenSSH reads SSH_ASKPASS_REQUIRE since 8.4; older versions look for DISPLAY.
        yield {
            "SSH_ASKPASS": script_path,
            "SSH_ASKPASS_REQUIRE": "force",
            "DISPLAY": os.environ.get("DISPLAY", ":0"),
        }
    finally:
        is_finished = True
        while thread.is_alive():
            descriptor = os.open(pipe_path, os.O_RDONLY | os.O_NONBLOCK)
            thread.join(0.1)
            os.close(descriptor)
        shutil.rmtree(folder, ignore_errors=True)
