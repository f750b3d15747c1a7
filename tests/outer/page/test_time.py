"""What was, and what still fits, as people see it in a real browser."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from podwright.history import KEEP
from podwright.store import SQLiteHistory
from tests.history.recording import Recording
from tests.outer.page.conftest import Site
from tests.whole.conftest import BIN

pytestmark = pytest.mark.outer


def one(used: int, waiting: int = 0) -> dict[str, dict[str, Any]]:
    """A snapshot of a pod of 16 whose first devices are `old`'s."""
    rows = [("IN_USE", "old") if at < used else ("FREE", "") for at in range(16)]
    partition = {
        "owner": "ruth", "job": "", "allocation": "a", "created": 1, "until": 0, "state": "ACTIVE"
    }  # fmt: skip
    waiter = {"owner": "bob", "asked": "16", "needs": "", "since": 1, "priority": 0}
    cluster = {"family": "ipu", "size": 16, "domains": [16], "simulated": True, "drained": []}
    return {
        "clusters": {"pod16": cluster},
        "devices": {
            f"pod16/0/{at}": (f"ag{at // 4 + 1}", at % 4, *row, "a") for at, row in enumerate(rows)
        },
        "partitions": {"old": partition} if used else {},
        "waiters": {f"w{i}": {**waiter, "place": i} for i in range(waiting)},
        "fragments": {"pod16": {"sizes": [[1, 16 - used, 0], [16, not used, 16 * bool(used)]]}},
    }


def an_hour(site: Site, now: int) -> None:
    """Half an hour in which 12 were used and two waited; then all was free, until 3 minutes ago."""
    history = SQLiteHistory(site.storage.with_name("server.db-history"))
    recording, minute = Recording(), now // 60

    for at in range(minute - 50, minute - 2):
        state = one(12, 2) if at < minute - 20 else one(0)
        history._write(recording.row(at, state), at - KEEP, 10**7)  # a loop runs here: Playwright's


def test_an_hour_is_drawn_and_each_minute_of_it_can_be_seen(
    make_site: Callable[..., Site], page: Page
) -> None:
    now = int(time.time())
    site = make_site("--preset", "pod16", before=lambda site: an_hour(site, now))
    page.goto(f"{site.address}/time")
    expect(page.locator("#then")).to_contain_text("0 partitions, 0 waiting")
    expect(page.locator(".chart rect.used")).not_to_have_count(0)
    was = (now // 60 - 30) * 60
    page.goto(f"{site.address}/time?at={was}")
    expect(page.locator("#then")).to_contain_text("1 partitions, 2 waiting")
    expect(page.locator("#was svg[role=group] .device.IN_USE")).to_have_count(12)
    page.locator("#was .device.IN_USE").first.hover()
    expect(page.locator("#about")).to_contain_text("by partition old of ruth")
    page.locator("#scrub").focus()
    for _ in range(10):
        page.keyboard.press("ArrowRight")
    expect(page.locator("#was svg[role=group] .device.IN_USE")).to_have_count(0)
    expect(page).to_have_url(f"{site.address}/time?at={was + 600}")
    page.select_option("#span", "month")
    expect(page.locator("#summary")).to_contain_text("last 30 days")
    page.goto(f"{site.address}/time?at={was - 3600}")
    expect(page.locator("#then")).to_contain_text("nothing is known of that minute")


def test_the_page_shows_which_sizes_still_fit_and_for_whom_devices_are_kept(
    make_site: Callable[..., Site], page: Page
) -> None:
    site = make_site("--preset", "pod16")
    page.goto(f"{site.address}/pod")
    for at in (0, 6, 12):
        site.good("vipu", "create", "partition", f"p{at}", "--size", "1")
    row = page.locator(".sizes td[data-size='16']")
    expect(row).to_have_text(["0", "13"])
    page.locator(".sizes th[data-size='8'] button").click()
    expect(page).to_have_url(f"{site.address}/pod?size=8")
    expect(page.locator(".sizes [aria-pressed=true]")).to_have_text("8")


_TELL = """
import subprocess
import sys
from podwright.client import Client, UnixTransport
from podwright.wire import JobInfo, JobReport
jobs = [JobInfo(id=n, owner="ruth", asked="16 devices of ipu", needs="16 are free") for n in "74"]
Client(UnixTransport(sys.argv[1])).call("ReportJobs", JobReport(jobs=jobs))
"""


def test_jobs_of_slurm_are_listed_beside_the_queue_in_slurms_order(
    make_site: Callable[..., Site], page: Page
) -> None:
    site = make_site("--preset", "pod16")
    page.goto(f"{site.address}/line")
    expect(page.locator("#main")).to_contain_text("Nobody waits.")
    expect(page.locator("#jobs")).to_be_empty()
    site.good(sys.executable, "-c", _TELL, site.socket)
    expect(page.locator("#jobs tbody tr td:nth-child(2)")).to_have_text(["7", "4"])
    expect(page.locator("#jobs")).to_contain_text("vipu list queue")


def test_partitions_in_the_way_of_a_request_are_marked_on_the_map(
    make_site: Callable[..., Site], page: Page
) -> None:
    site = make_site("--preset", "pod16")
    site.good("vipu", "create", "partition", "old", "--size", "8")
    wait = ["vipu", "create", "partition", "large", "--size", "16", "--wait"]
    with subprocess.Popen(
        [str(BIN / wait[0]), *wait[1:]], env=site.environ, stderr=subprocess.DEVNULL
    ) as waits:
        page.goto(f"{site.address}/line")
        page.click("text=show on the pod")
        expect(page.locator("svg[role=group] .device.way")).to_have_count(8)
        expect(page.locator("#way")).to_contain_text("partition old of root has 8")
        site.good("vipu", "remove", "partition", "old")
        expect(page.locator("svg[role=group] .device.IN_USE")).to_have_count(16)
        expect(page.locator("svg[role=group] .device.way")).to_have_count(0)
        assert waits.wait(300) == 0


_FIRST = """
import sys
from podwright.client import Client, UnixTransport
from podwright.wire import EnqueueRequest, JobInfo, JobReport, PoolHead
client = Client(UnixTransport(sys.argv[1]))
first = PoolHead(cluster="pod16", job="job 7", owner="ruth", sizes=[16], due=True)
client.call("Enqueue", EnqueueRequest(guest="slurm", pools=[first]))
jobs = [JobInfo(id=name, owner="ruth", asked="16 devices", needs="16 are free") for name in "74"]
client.call("ReportJobs", JobReport(jobs=jobs, guest="slurm"))
other = JobReport(jobs=[JobInfo(id="a/b", owner="eve", asked="4 devices")], guest="kubernetes c1")
client.call("ReportJobs", other)
"""


def test_devices_that_the_common_queue_keeps_are_marked_on_the_map(
    make_site: Callable[..., Site], page: Page
) -> None:
    site = make_site("--preset", "pod16")
    site.good("vipu", "create", "partition", "old", "--size", "8")
    page.goto(f"{site.address}/pod")
    expect(page.locator(".queue")).to_contain_text("Nobody waits.")
    site.good(sys.executable, "-c", _FIRST, site.socket)
    expect(page.locator(".queue h3")).to_have_text(["kubernetes c1", "slurm"])
    slurm = page.locator(".queue ol[aria-label=slurm] li")
    expect(slurm).to_have_count(2)
    expect(slurm.first).to_contain_text("ruth: job 7, 16 devices")
    expect(slurm.first).to_contain_text("8 devices are kept for it")
    expect(slurm.last).not_to_contain_text("kept")
    expect(page.locator("svg[role=group] .device.RESERVED")).to_have_count(8)
    page.locator("svg[role=group] .device.RESERVED").first.hover()
    expect(page.locator("#about")).to_contain_text("kept for job 7 of slurm")
    expect(page.locator(".sizes")).to_contain_text("8 for job 7 of slurm")
    page.goto(f"{site.address}/line")
    row = page.locator("#jobs tbody tr[data-row='slurm/7'] td")
    expect(row.nth(2)).to_have_text("slurm")
    expect(row.nth(6)).to_have_text("8")
