"""The page of GPU nodes in a real browser, by the real command; Slurm's words are recorded ones."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.gpu.nodespage.words import stand_in
from tests.whole.conftest import BIN

pytestmark = pytest.mark.outer


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    command = [str(BIN / "podwright"), "slurm", "serve", "--web", "0"]
    command += ["--command-prefix", str(stand_in(tmp_path))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().removeprefix("GPU nodes: ").strip()
        process.terminate()
        assert process.wait(300) == 0


def test_nodes_their_gpus_and_what_waits_are_seen(address: str, page: Page) -> None:
    page.goto(address)
    expect(page.locator("#state")).to_have_text("live")
    expect(page.locator("[data-node=gpu1] .device.IN_USE")).to_have_count(2)
    expect(page.locator("[data-node=gpu2]")).to_contain_text("XID 79 on GPU 3")
    page.locator("[data-node=gpu1] .device.IN_USE").first.hover()
    expect(page.locator("#about")).to_contain_text("GPU 0 of gpu1, a100: job 7 of alice")
    page.click("#about a")
    expect(page.locator("h1")).to_have_text("Running")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.click("#views a[href='/queue']")
    expect(page.locator("tbody tr td:nth-child(2)")).to_have_text(["9", "8"])
    expect(page.locator("tbody tr").nth(1)).to_contain_text("--gpus-per-node=8")
    page.reload()
    expect(page.locator("h1")).to_have_text("Waiting")
