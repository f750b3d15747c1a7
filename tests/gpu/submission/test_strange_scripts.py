"""Scripts are untrusted text: whatever is in one, job_submit gets an answer that it can read.

A fault ends a worker, and while no worker runs, every script passes unread.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwright.gpu.lint import CachedSite
from podwright.gpu.submission import answer

SITE = CachedSite()
SCRIPTS = [
    path.read_text(errors="surrogateescape")
    for path in sorted(Path(__file__).parents[1].joinpath("requests/scripts").glob("*/*"))
]
LONG = "9" * 5000  # more digits than int() takes
NUMBERS = ["²", "٣", "1²", LONG, f"{LONG}G", "-1", "0", "1e3", "1k", "2-²", ""]
OPTIONS = [
    "nodes", "ntasks", "gpus", "gpus-per-node", "gres=gpu:", "gres=gpu:a100:", "mem", "time",
    "array", "cpus-per-task", "ntasks-per-node", "gpu-bind=per_task:", "nodelist=n[", "mem-per-gpu",
]  # fmt: skip


def numbered(option: str, number: str) -> str:
    return f"--{option}{'' if option[-1:] in ':[' else '='}{number}"


lines = st.builds(numbered, st.sampled_from(OPTIONS), st.sampled_from(NUMBERS))
pieces = st.one_of(
    st.text(max_size=12),
    lines.map(lambda line: f"\n#SBATCH {line}\n"),
    lines.map(lambda line: f"\nsrun {line} -n ² -N{LONG} torchrun --nproc-per-node=² t.py\n"),
    st.sampled_from(
        ["$(", "`", "${x:=", "((", "<<EOF", "'", '"', "\\", "\0", "\r", "\x85", "\u2028", "\ud800",
         "{1..999999999}", "$((9**9**9))", "export A=$A$A$A\n", "\n#SBATCH hetjob\n", "\n"]
    ),
)  # fmt: skip
#: Where something is put in, what, and how much goes.
changes = st.lists(st.tuples(st.integers(0, 6000), pieces, st.integers(0, 12)), max_size=6)
heads = st.lists(
    st.builds(
        "{}={}\n".format,
        st.sampled_from(["min_nodes", "num_tasks", "ntasks_per_node", "tres_per_node", "x"]),
        st.one_of(st.sampled_from([*NUMBERS, "gres/gpu:²", f"gpu:{LONG}"]), st.text(max_size=9)),
    ),
    max_size=4,
)


def changed(script: str, how: list[tuple[int, str, int]]) -> str:
    for at, put, gone in how:
        at %= len(script) + 1
        script = script[:at] + put + script[at + gone :]
    return script


def reads(question: str) -> None:
    said = answer(question, SITE)
    assert said == "clean\n" or said.startswith("mistake\npodwright lint: "), said
    assert said.encode("utf-8", "replace").endswith(b"\n")


@pytest.mark.more
@given(heads, st.sampled_from(SCRIPTS), changes)
def test_every_question_has_an_answer(
    head: list[str], script: str, how: list[tuple[int, str, int]]
) -> None:
    reads(f"{''.join(head)}\n{changed(script, how)}")


@pytest.mark.parametrize("option", OPTIONS)
def test_no_digits_that_slurm_does_not_count_in_are_a_number(option: str) -> None:
    for number in NUMBERS:
        line = numbered(option, number)
        reads(f"\n\n#!/bin/bash\n#SBATCH {line}\nsrun {line} torchrun --nproc-per-node={number}\n")
        reads(
            f"min_nodes={number}\ntres_per_node=gres/gpu:{number}\n\n#!/bin/bash\nsrun {line} x\n"
        )
