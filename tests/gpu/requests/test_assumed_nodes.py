"""What a request on assumed nodes keeps, and what is left out because nothing is assumed of it."""

from __future__ import annotations

import pytest

from podwright.gpu import requests


@pytest.mark.parametrize(
    ("options", "kept", "left_out"),
    [
        ("--gpus=2 --mem=32G --mem-per-gpu=8G", ["gpus"], ["mem", "mem-per-gpu"]),
        ("--gpus=2 -C a100 --prefer=fast", ["gpus"], ["constraint", "prefer"]),
        ("--gpus=2 -w n9 -x n[1-3] --tmp=9G", ["gpus"], ["nodelist", "exclude", "tmp"]),
        ("--gpus=2 --switches=1 --segment=2", ["gpus"], ["switches", "segment"]),
        (
            "--gpus=2 -c 8 --time=1-0 --exclusive",
            ["gpus", "cpus-per-task", "time", "exclusive"],
            [],
        ),
        ("--gres=lustre:1 -N2", ["nodes"], ["gres"]),
    ],
)
def test_what_nothing_is_assumed_about_is_left_out(
    options: str, kept: list[str], left_out: list[str]
) -> None:
    assumed = requests.assumed_request(requests.parse_request(options.split()))
    assert [given.name for given in assumed.request.given] == kept
    assert [one.option for one in assumed.left_out] == left_out
    assert all(one.because.startswith("nothing is assumed about") for one in assumed.left_out)
    assert assumed.problem == ""


def test_of_several_resources_the_gpus_are_kept() -> None:
    request = requests.parse_request(["--gres=gpu:a100:2,lustre:1", "--tres-per-task=cpu:4"])
    assumed = requests.assumed_request(request)
    assert assumed.request.per_node == requests.Gpus(2, "a100")
    assert assumed.request.cpus_per_task == 4
    assert [one.option for one in assumed.left_out] == ["gres"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("--gres=shard:4", "no shares of GPUs"),
        ("--gres=gpu:a100:1,gpu:v100:1", "GPUs of one type"),
    ],
)
def test_what_assumed_nodes_cannot_have_is_no_refusal(options: str, problem: str) -> None:
    assert problem in requests.assumed_request(requests.parse_request([options])).problem
