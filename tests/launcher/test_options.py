"""Command lines are read by Boost's syntax, and each mistake gets one clear line."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from podwright.errors import InvalidRequest
from podwright.launcher import OPTIONS, Options, help_text, parse


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("train.py", {}),
        ("--num-replicas 8 --num-instances=4 t", {"num_replicas": 8, "num_instances": 4}),
        ("--num-rep 8 --num-inst=4 t", {"num_replicas": 8, "num_instances": 4}),
        ("--num-replicas 8 --num-replicas 4 t", {"num_replicas": 4}),
        ("-vv t", {"verbosity": 2}),
        ("--vv t", {"verbosity": 2}),
        ("-v t", {"verbosity": 1}),
        ("--verbose t", {"verbosity": 1}),
        ("--dry-run t", {"dry_run": "plan"}),
        ("--dry-run=plan t", {"dry_run": "plan"}),
        ("--sync-type ST_POD_NATIVE_DEFAULT t", {"sync_type": "POD_NATIVE_DEFAULT"}),
        ("--vipu-server-timeout=600 t", {"vipu_server_timeout": 600.0}),
        ("--mpi-global-args --tag-output t", {"mpi_global_args": ("--tag-output",)}),
        (
            "--mpi-global-args=--a --mpi-global-args '--b c' t",
            {"mpi_global_args": ("--a", "--b c")},
        ),
        ("--mpi-local-args='-x A' t", {"mpi_local_args": ("-x A",)}),
        ("--instance-mpi-local-args '0:-x A=1' t", {"instance_mpi_local_args": ((0, "-x A=1"),)}),
        ("--executable-cache-path= t", {"executable_cache_path": ""}),
        ("--executable-cache-path '' t", {"executable_cache_path": ""}),
        ("--offline-mode=no --offline-target pod16 t", {"offline_target": "pod16"}),
        (
            "--grace 0 --timeout=1.5 --max-restarts 3 t",
            {"grace": 0.0, "timeout": 1.5, "max_restarts": 3},
        ),
        ("--host localhost t", {"host": "localhost"}),
        ("-- t", {}),
    ],
)
def test_command_lines_are_read_as_poprun_reads_them(line: str, wanted: dict[str, Any]) -> None:
    program = ("train.py",) if line == "train.py" else ("t",)
    assert parse(shlex.split(line)) == Options(program=program, **wanted)


@pytest.mark.parametrize("word", ["yes", "1", "on", "true", "YES", "no", "0", "off", "false"])
def test_booleans_take_the_words_of_boost(word: str) -> None:
    wanted = word.lower() in ("yes", "1", "on", "true")
    for name in ("update-partition", "reset-partition", "remove-partition", "print-topology"):
        for form in ([f"--{name}={word}"], [f"--{name}", word]):
            assert getattr(parse([*form, "t"]), name.replace("-", "_")) is wanted


def test_options_end_at_the_first_word_that_is_no_option() -> None:
    found = parse(["--num-replicas", "2", "python3", "t.py", "--num-replicas", "9", "-vv"])
    assert found.num_replicas == 2
    assert found.program == ("python3", "t.py", "--num-replicas", "9", "-vv")


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("--num-replics 4 t", "no option --num-replics. The nearest is --num-replicas."),
        ("--num=ilds 4 t", "--num is ambiguous. It could be --num-replicas"),
        ("-x t", "no option -x"),
        ("--num-replicas", "--num-replicas needs a value. Write --num-replicas=N."),
        ("--vipu-partition --num-replicas 4 t", "--vipu-partition needs a value"),
        ("--num-replicas=0 t", "takes a whole number above 0, not '0'"),
        ("--num-replicas=-4 t", "takes a whole number above 0, not '-4'"),
        ("--num-replicas=four t", "takes a whole number above 0, not 'four'"),
        ("--num-replicas=9999999999999999 t", "takes a whole number above 0"),
        ("--update-partition=maybe t", "takes yes or no"),
        ("--vipu-server-port=70000 t", "takes a port from 1 to 65535"),
        ("--vipu-server-timeout=nan t", "takes a time in seconds"),
        ("--vipu-partition= t", "--vipu-partition takes a word, not ''"),
        ("--instance-mpi-local-args=hello t", "an instance, a colon and arguments"),
        ("--dry-run=hosts t", "--dry-run takes no value, plan or server, not 'hosts'"),
        ("--offline-target=pod5 t", "takes pod4, pod8, pod16, pod32, pod64, pod128 or pod256, not"),
        ("--distribute-ssh-key-type dsa t", "OpenSSH no longer takes or makes such keys"),
        ("--distribute-ssh-key-type des t", "takes ed25519, ecdsa or rsa, not 'des'"),
        ("--grace=-1 t", "takes a time in seconds"),
        ("--max-restarts=-1 t", "takes a whole number"),
        ("--log-dir= t", "--log-dir takes a path"),
        ("--host a, b --num-replicas 1 t", "takes a list without blanks, or in quotes"),
        ("--host a ,b t", "the list of hosts is cut short before ',b'"),
        ("-H '' t", "--host takes names of hosts, not ''"),
        ("--version-format=xml", "takes text, full-text or full-json"),
        ("--help=no t", "--help takes no value"),
        ("' --num-instances=4' t", "begins or ends with a blank"),
    ],
)
def test_mistakes_get_one_line(line: str, wanted: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse(shlex.split(line))
    assert wanted in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.exit_code == 2


def test_help_names_every_option() -> None:
    text = help_text()
    for option in OPTIONS:
        assert f"  {option.name} " in text, option.name
