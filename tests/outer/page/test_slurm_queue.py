"""Jobs that wait in a real slurmctld, on the page beside the own line, in Slurm's order."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.outer.lab import ALICE, BOB
from tests.outer.slurm.native import NativeLab
from tests.ports import free_port

#: Under soak until it has proven steady.
pytestmark = [pytest.mark.outer, pytest.mark.slurm, pytest.mark.soak]
#: Slurm tells of its queue every few seconds, and a busy machine takes its time.
PATIENCE = 300


class PageLab(NativeLab):
    """A Slurm whose server has its page."""

    page_port = 0

    def start_server(self) -> None:
        self.page_port = free_port()
        self.serve("--preset", self.preset, "--http-port", str(self.page_port))


@pytest.fixture
def lab() -> Iterator[PageLab]:
    with PageLab(preset="pod16", nodes=1, cpus=16) as made:
        yield made


def test_jobs_that_wait_in_slurm_are_listed_in_slurms_order(lab: PageLab, page: Page) -> None:
    page.goto(f"http://127.0.0.1:{lab.page_port}/line")
    expect(page.locator("#main")).to_contain_text("Nobody waits.")
    all_of_it = lab.batch("sleep 900", "--ipus=16")
    lab.wait_state(all_of_it, "RUNNING", seconds=PATIENCE)
    waiting = [
        lab.batch("sleep 900", f"--ipus={size}", user=user)
        for size, user in ((8, ALICE), (4, BOB), (2, ALICE))
    ]
    numbers = page.locator("#jobs tbody tr td:nth-child(2)")
    expect(numbers).to_have_text([str(job) for job in waiting], timeout=PATIENCE * 1000)
    first = page.locator("#jobs tbody tr").first
    expect(first).to_contain_text(ALICE)
    expect(first).to_contain_text("8 devices of")
    lab.ok("scontrol", "update", f"JobId={waiting[0]}", "Priority=10")
    then = [str(job) for job in [*waiting[1:], waiting[0]]]
    expect(numbers).to_have_text(then, timeout=PATIENCE * 1000)
    squeue = ("squeue", "--state=PENDING", "--sort=-p", "--noheader", "--format=%i")
    assert numbers.all_inner_texts() == lab.ok(*squeue).split()
    lab.ok("scancel", str(all_of_it))
    for job in waiting:
        lab.wait_state(job, "RUNNING", seconds=PATIENCE)
    nobody = "No job waits for devices."
    expect(page.locator("#jobs")).to_contain_text(nobody, timeout=PATIENCE * 1000)
    lab.ok("scancel", *map(str, waiting))
    lab.wait_over(*waiting, seconds=PATIENCE)
