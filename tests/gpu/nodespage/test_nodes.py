"""Nodes, GPUs and jobs as a page shows them, from what scontrol says."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from podwright.errors import InvalidRequest, Unavailable
from podwright.gpu.nodespage import Looker, NodesPage
from podwright.gpu.nodespage._nodes_page_data import options_of
from podwright.http import HttpRequest, Reply
from podwright.slurm.reader import read_jobs
from podwright.slurm.site.commands import CommandResult, FakeSlurm
from tests.gpu.nodespage.words import said
from tests.slurm.reader import texts


def looker(private: str = "none") -> tuple[Looker, FakeSlurm]:
    slurm = FakeSlurm(lambda argv: said(list(argv)))
    return Looker(slurm, lambda words: said(words, private=private), clock=lambda: 0.0), slurm


async def test_gpus_are_shown_by_job_and_ill_nodes_by_their_reason() -> None:
    topics: dict[str, Any] = await looker()[0].topics()
    nodes = topics["nodes"]
    assert set(nodes) == {"gpu1", "gpu2"}, "only those with GPUs"
    assert [job for _, job in nodes["gpu1"]["gpus"]] == ["7", "", "7", ""]
    assert nodes["gpu1"]["gpus"][0][0] == "a100"
    assert (nodes["gpu1"]["ill"], nodes["gpu2"]["ill"]) == (False, True)
    assert nodes["gpu2"]["reason"].startswith("XID 79 on GPU 3")
    assert topics["jobs"]["7"]["user"] == "alice"
    assert topics["jobs"]["7"]["gpus"] == 2


async def test_who_waits_stands_in_slurms_order_with_the_words_of_explain_request() -> None:
    topics: dict[str, Any] = await looker()[0].topics()
    queue = topics["queue"]
    assert [(job, one["place"]) for job, one in queue.items()] == [("9", 1), ("8", 2)]
    assert queue["8"]["asked"].split()[0] == "--gpus-per-node=8"
    assert queue["9"]["asked"].split()[0] == "--gpus=a100:2"
    assert "waits for ever" in queue["8"]["why"] or "refuses" in queue["8"]["why"]
    assert queue["9"]["why"]
    assert "waits for ever" not in queue["9"]["why"]
    assert (queue["8"]["starts"], queue["9"]["starts"]) == ("", "2026-01-01T12:00:00")


async def test_the_same_is_explained_once() -> None:
    look, _ = looker()
    await look.topics()
    asked = look._explained
    calls: list[tuple[str, ...]] = []

    def counted(request_options: tuple[str, ...]) -> str:
        calls.append(request_options)
        return asked(request_options)

    look._explained = counted  # type: ignore[method-assign]
    await look.topics()
    assert not calls


@pytest.mark.parametrize(("private", "kept"), [("jobs", {"nodes"}), ("jobs,nodes", set())])
async def test_what_slurm_hides_from_users_is_shown_to_nobody(private: str, kept: set[str]) -> None:
    topics: dict[str, Any] = await looker(private)[0].topics()
    assert {name for name, items in topics.items() if items} == kept
    for name in ("alice", "bob", "ruth", '"7"'):
        assert name not in json.dumps(topics)
    if kept:
        assert [job for _, job in topics["nodes"]["gpu1"]["gpus"]] == ["?", "", "?", ""]


async def test_a_slurm_that_does_not_answer_is_said() -> None:
    look = Looker(FakeSlurm(lambda _: CommandResult(1, "", "no route")), lambda _: "")
    with pytest.raises(Unavailable, match="Slurm does not answer"):
        await look.topics()


@pytest.mark.parametrize(
    ("field", "value", "word"),
    [
        ("TresPerNode", "gres:gpu:4", "--gpus-per-node=4"),  # 22.05
        ("TresPerNode", "gres/gpu:a100:4", "--gpus-per-node=a100:4"),
        ("TresPerTask", "gres/gpu=1", "--gpus-per-task=1"),  # 24.11
        ("TresPerTask", "cpu=2,gres/gpu:1", "--gpus-per-task=1"),
        ("TresPerJob", "gres:gpu", "--gpus=1"),
    ],
)
def test_each_releases_words_become_options(field: str, value: str, word: str) -> None:
    text = texts.job("PENDING", **{field: value}).replace("TresPerTask=gres/gpu=1 ", "")
    (job,) = read_jobs(text)
    assert options_of(job)[0] == word


async def ask(page: NodesPage, path: str, host: str = "localhost:1", verb: str = "GET") -> Reply:
    page._names = {"localhost"}
    headers = [(b"host", host.encode())]
    asked = HttpRequest(verb, path, "", headers, b"", None, "127.0.0.1")
    return await page._answer(asked)


async def test_it_is_read_only_and_for_its_own_name() -> None:
    page = NodesPage(looker()[0])
    assert (await ask(page, "/nodes")).kind.startswith("text/html")
    assert b"nodes.js" in cast("bytes", (await ask(page, "/")).body)
    assert json.loads(cast("bytes", (await ask(page, "/v1/nodes")).body))["jobs"]
    for host in ("evil.example", "127.0.0.1:8092.evil.com", "localhost:1:2"):
        assert (await ask(page, "/v1/nodes", host=host)).status == 421
    assert (await ask(page, "/session", verb="POST")).status == 405
    assert (await ask(page, "/metrics")).status == 404
    with pytest.raises(InvalidRequest, match="ssh -L"):
        await page.start("0.0.0.0", 0)
