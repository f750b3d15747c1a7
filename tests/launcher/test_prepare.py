"""The preparation of hosts before a launch: keys, folders, and refusals."""

from __future__ import annotations

import os
import sys

import pytest

from podwright.errors import InvalidRequest
from podwright.launcher import Plan, make_plan, parse

HOSTS = "--host=a,b --num-replicas=2 --num-instances=2"


def plan(words: str, **environ: str) -> Plan:
    return make_plan(parse([*words.split(), "train"]), environ)


def test_the_key_of_the_users_own_folder_is_copied() -> None:
    found = plan(f"{HOSTS} --distribute-ssh-key", HOME="/home/u")
    assert found.preparation.key_folder == "/home/u/.ssh"
    assert "distributed from /home/u/.ssh: the best there" in str(found)


@pytest.mark.parametrize("yes", ["--distribute-ssh-key", "--distribute-ssh-key=yes"])
def test_a_key_of_another_folder_and_kind_is_copied(yes: str) -> None:
    found = plan(f"{HOSTS} {yes} --distribute-ssh-key-path /keys --distribute-ssh-key-type rsa")
    assert found.preparation[:2] == ("/keys", "rsa")
    assert "distributed from /keys: id_rsa, made if missing" in str(found)


def test_options_decide_which_folders_are_copied() -> None:
    every = "--synchronise-python-venv --synchronise-poplar-sdk=yes --synchronise-code"
    found = plan(f"{HOSTS} {every}", VIRTUAL_ENV="/venv", POPLAR_SDK_ENABLED="/sdk")
    own = [os.path.abspath(sys.prefix)] if sys.prefix != sys.base_prefix else []
    assert found.preparation.folders == (*own, "/venv", "/sdk", os.getcwd())
    assert "  copied:        /sdk\n" in str(found)


def test_nothing_is_done_where_there_is_one_host() -> None:
    assert not any(plan("--distribute-ssh-key --synchronise-code").preparation)
    assert not any(plan(f"{HOSTS} --distribute-ssh-key=no").preparation)


@pytest.mark.parametrize(
    ("words", "environ", "said"),
    [
        ("--distribute-ssh-key-type=rsa", {}, "Write --distribute-ssh-key too"),
        ("--distribute-ssh-key-path=/x", {}, "says which key is distributed, and none is"),
        ("--synchronise-poplar-sdk", {}, "POPLAR_SDK_ENABLED does not say where an SDK is"),
        (
            "--synchronise-code",
            {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "a,b"},
            "the nodes of a Slurm job are reached by srun",
        ),
    ],
)
def test_impossible_preparations_are_refused(
    words: str, environ: dict[str, str], said: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        plan(f"{HOSTS} {words}", **environ)
    assert said in caught.value.message
