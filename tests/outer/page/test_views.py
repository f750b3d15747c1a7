"""What each view shows and lets one do: tables, colours, acting by keys, on paper, what has failed,
what moves."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from podwright.cli.about._command_parsers import parser_of
from tests.outer.page.conftest import Site
from tests.outer.page.test_page import VIEWS, live, visit
from tests.whole.conftest import BIN
from tests.whole.machines import SILENCE, Machines
from tests.whole.test_launch_moves import PATIENT, TRAPS

#: Under soak until they have proven steady.
pytestmark = [pytest.mark.outer, pytest.mark.soak]
#: The command that says the same as a view. Time has none: what was is had as JSON.
SAME = {
    "pod": "vipu list devices",
    "line": "vipu list waiters",
    "partitions": "vipu list partitions",
    "leases": "vipu list leases",
    "machines": "vipu-admin list machines",
    "allocations": "vipu list allocations",
    "quotas": "vipu list quotas",
    "users": "vipu-admin list users",
    "events": "vipu events",
}
_FOR_A_JOB = """
import sys
from podwright.client import Client, UnixTransport
from podwright.wire import CreateRequest, PartitionInfo, PartitionSpec
spec = PartitionSpec(name="j1", size=4)
request = CreateRequest(spec=spec, owner="ruth", owner_uid=4711, job="7")
Client(UnixTransport(sys.argv[1])).call("CreatePartition", request)
"""


def rows(page: Page) -> list[str | None]:
    """The rows of the table, as they stand."""
    return [row.get_attribute("data-row") for row in page.locator("tbody tr[data-row]").all()]


def test_tables_are_searched_and_sorted_and_their_addresses_say_how(
    make_site: Callable[..., Site], page: Page
) -> None:
    site = make_site("--preset", "pod16")
    for name, size in (("p10", 1), ("p2", 4), ("other", 2)):
        site.good("vipu", "create", "partition", name, "--size", str(size))
    page.goto(f"{site.address}/partitions")
    expect(page.locator("caption")).to_have_text("3 in all")
    assert rows(page) == ["other", "p2", "p10"]  # numbers in names count as numbers
    devices = page.get_by_role("columnheader", name="Devices")
    devices.get_by_role("button").click()
    expect(devices).to_have_attribute("aria-sort", "ascending")
    assert rows(page) == ["p10", "other", "p2"]
    devices.get_by_role("button").press("Enter")
    expect(devices).to_have_attribute("aria-sort", "descending")
    page.fill("#find", "P1")
    expect(page.locator("caption")).to_have_text("1 of 3")
    expect(page).to_have_url(f"{site.address}/partitions?find=P1&order=1&down=true")
    page.reload()
    expect(page.locator("#find")).to_have_value("P1")
    expect(page.locator("caption")).to_have_text("1 of 3")
    assert rows(page) == ["p10"]
    page.fill("#find", "")
    expect(page.locator("caption")).to_have_text("3 in all")
    assert rows(page) == ["p2", "other", "p10"]
    page.fill("#find", "nothing like it")
    expect(page.locator("tbody")).to_have_text("Nothing fits the search.")
    page.goto(f"{site.address}/partitions?find=p2")
    page.click("tbody a")
    expect(page).to_have_url(f"{site.address}/partitions/p2")
    assert site.address not in page.locator("#main").inner_html()  # links have no host of their own
    for view in VIEWS.keys() - {"time", "problems"}:
        page.goto(f"{site.address}/{view}")
        expect(page.locator("#main code").first).to_have_text(SAME[view])
        command, *words = SAME[view].split()
        parser_of(command).parse_args(words)  # there is such a command


def test_colours_and_legend_follow_the_chosen_property(
    make_site: Callable[..., Site], page: Page
) -> None:
    site = make_site("--preset", "pod16")
    site.good("vipu", "create", "partition", "p1", "--size", "2")
    site.good(sys.executable, "-c", _FOR_A_JOB, site.socket)
    cells = page.locator("svg[role=group] .device.IN_USE")
    for by, keys in (
        ("partition", ["j1 of ruth (4)", "p1 of root (2)", "free"]),
        ("user", ["ruth (4)", "root (2)", "free"]),
        ("job", ["7 (4)", "free", "in use"]),
        ("load", ["no program holds it (6)", "free"]),
        ("state", ["free", "in use"]),
    ):
        page.goto(f"{site.address}/pod?by={by}")
        expect(cells).to_have_count(6)
        expect(page.locator(".legend .key")).to_have_text(keys)
        coloured = page.locator("svg[role=group] .device.IN_USE").evaluate_all(
            "found => found.filter((one) => / h[0-9]/.test(one.getAttribute('class'))).length"
        )
        assert coloured == {"job": 4, "state": 0}.get(by, 6)
    page.locator("svg[role=group] .device.IN_USE[aria-label*=j1]").first.focus()
    expect(page.locator("#about")).to_contain_text("of ruth, job 7, since ")


def test_every_action_works_by_keys_and_is_in_the_events(
    make_site: Callable[..., Site], page: Page
) -> None:
    site = make_site("--preset", "pod16")
    site.good("vipu", "create", "partition", "p1", "--size", "8")
    page.goto(site.link())
    expect(page.locator("#who")).to_contain_text("root (administrator)")

    def act(view: str, button: str, *said: str, reason: str = "") -> None:
        """By keys alone: to the view, to the button, to what is asked, to yes."""
        page.locator(f"#views a[href='/{view}']").focus()
        page.keyboard.press("Enter")
        page.locator(f"[data-focus='{button}']").focus()
        page.keyboard.press("Enter")
        for words in said:
            expect(page.locator("#ask")).to_contain_text(words)
        if reason:
            expect(page.locator("#reason")).to_be_focused()
            page.keyboard.type(reason)
            page.keyboard.press("Tab")
        else:
            expect(page.get_by_text("Leave it")).to_be_focused()
            page.keyboard.press("Shift+Tab")
        expect(page.locator("#yes")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("#ask")).not_to_be_visible()

    said = ("p1", "Nothing new is placed there", "vipu-admin drain machine ag1 --reason")
    act("machines", "Drain ag1", *said, reason="fan 3 is loud")
    expect(page.locator("[data-row=ag1]")).to_contain_text("UP, drained")
    expect(page.locator("[data-row=ag1]")).to_contain_text("fan 3 is loud")
    ag1 = site.json("vipu-admin", "list", "machines")[0]
    assert (ag1["state"], ag1["reason"]) == ("DRAINED", "fan 3 is loud")
    act("machines", "Resume ag1", "vipu-admin resume machine ag1")
    expect(page.locator("[data-focus='Drain ag1']")).to_be_visible()
    act("partitions", "Reset p1", "Nobody holds it.", "vipu reset partition p1")
    wait = [str(BIN / "vipu"), "create", "partition", "large", "--size", "16", "--wait"]
    with subprocess.Popen(wait, env=site.environ, stderr=subprocess.DEVNULL) as waits:
        visit(page, "line")
        cancel = page.locator("[data-focus^='Cancel ']")
        expect(cancel).to_have_count(1)
        row = page.locator("tbody tr[data-row]")
        expect(row.locator("td").first).to_have_text("1")
        expect(row).to_contain_text("not known")  # nobody said how long p1 lasts
        button = cancel.get_attribute("data-focus")
        assert button is not None
        act("line", button, "partition large of 16 IPUs", "vipu remove waiter")
        assert waits.wait(300) != 0
    act("partitions", "Remove p1", "vipu remove partition p1")
    expect(page.locator("#main")).to_contain_text("There is no partition.")
    page.locator("#views summary").focus()
    page.keyboard.press("Enter")
    page.locator("#views a[href='/events']").focus()
    page.keyboard.press("Enter")
    for what in ("DrainMachine", "ResumeMachine", "ResetPartition", "Leave", "RemovePartition"):
        row = page.locator("tbody tr", has_text=what).first
        expect(row.locator("td").nth(1)).to_have_text("root")
        expect(row).to_contain_text("OK")
    # Escape is no.
    page.locator("#views a[href='/machines']").click()
    page.locator("[data-focus='Drain ag2']").press("Enter")
    expect(page.locator("#yes")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#ask")).not_to_be_visible()
    assert site.json("vipu-admin", "list", "machines")[1]["state"] == "UP"


#: What sticks out of the paper, and what is written in a colour that paper does not show.
_OFF_PAPER = """() => [...document.querySelectorAll('main *, header *')].filter((one) => {
  const box = one.getBoundingClientRect();
  return box.width && box.right > innerWidth + 1 && !one.closest('.chart');
}).map((one) => `${one.tagName} ${one.textContent.slice(0, 40)}`)"""


def test_a_printed_view_is_complete_and_light(make_site: Callable[..., Site], page: Page) -> None:
    site = make_site("--preset", "pod64")
    site.good("vipu", "create", "partition", "a-partition-of-a-long-name", "--size", "16")
    page.goto(site.link())
    expect(page.locator("#who")).to_contain_text("administrator")
    page.set_viewport_size({"width": 718, "height": 1000})  # A4 within its margins
    for view in VIEWS:
        page.emulate_media(media="screen", color_scheme="dark")
        page.goto(f"{site.address}/{view}")
        live(page)
        page.emulate_media(media="print", color_scheme="dark")
        expect(page.locator("#views")).not_to_be_visible()
        expect(page.locator("h1")).to_be_visible()
        for button in page.locator("td.act button").all():
            expect(button).not_to_be_visible()
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert ground == "rgb(255, 255, 255)", view
        assert page.evaluate(_OFF_PAPER) == [], view
    page.goto(f"{site.address}/pod")
    expect(page.locator("svg[role=group] .device")).to_have_count(64)
    assert page.pdf(format="A4").startswith(b"%PDF")


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    key = tmp_path / "agent.key"
    key.write_text("a key that only we two know\n")
    key.chmod(0o600)
    found = Machines(tmp_path, "--agent-key", str(key))
    yield found
    found.end()


def test_a_machine_that_fails_is_marked_on_the_map_and_in_the_table(
    make_site: Callable[..., Site], machines: Machines, page: Page, tmp_path: Path
) -> None:
    key = ("--agent-key", str(tmp_path / "agent.key"))
    site = make_site("--agent-silence", str(SILENCE), *key, "-a", "lo")
    for name in ("m1", "m2"):
        machines.start(name)
        port = str(machines.ports[name])
        site.good(
            *("vipu-admin", "create", "agent", name, "--host", "127.0.0.1", "--port", port),
        )
    site.good("vipu-admin", "create", "cluster", "c", "--agents", "m1,m2")
    page.goto(f"{site.address}/pod")
    expect(page.locator("svg[role=group] .device.FREE")).to_have_count(8)
    machines.signal("m2", signal.SIGKILL)
    expect(page.locator("svg[role=group] .device.DOWN")).to_have_count(4)
    expect(page.locator("text[data-machine=m2].bad")).to_have_text("✕ m2")
    expect(page.locator("text[data-machine=m1].bad")).to_have_count(0)
    page.locator("svg[role=group] .device[aria-label*='m2 index 0']").hover()
    expect(page.locator("#about")).to_contain_text("m2 index 0, down")
    visit(page, "machines")
    expect(page.locator("[data-row=m2] .bad")).to_have_text("DOWN")
    machines.start("m2")
    expect(page.locator("[data-row=m2] .bad")).to_have_count(0)
    visit(page, "pod")
    expect(page.locator("svg[role=group] .device.FREE")).to_have_count(8)


def test_a_launch_that_moves_is_marked_with_its_destination(
    make_site: Callable[..., Site], page: Page
) -> None:
    site = make_site("--preset", "pod16")
    page.goto(site.link())
    expect(page.locator("#who")).to_contain_text("administrator")
    words = [*PATIENT, "--launcher=local", "--move-signal=USR1", "sh", "-c", TRAPS]
    launch = subprocess.Popen(
        [str(BIN / "poprun"), "--allow-run-as-root=yes", *words],
        env=site.environ, cwd=site.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        expect(page.locator("svg[role=group] .device.IN_USE")).to_have_count(4)
        expect(page.locator("#moving")).to_be_empty()
        while site.json("vipu-admin", "moves")["movable"] != 1:
            assert launch.poll() is None
            page.wait_for_timeout(200)
        site.good("vipu-admin", "drain", "machine", "ag1")
        expect(page.locator("svg[role=group] .device.moving")).to_have_count(4)
        expect(page.locator("#moving li")).to_have_text("p of root is asked to move to ag2")
        page.locator("svg[role=group] .device.moving").first.hover()
        expect(page.locator("#about")).to_contain_text("asked to move")
        (site.folder / "may-end").touch()
        expect(page.locator("#moving")).to_be_empty()
        assert launch.wait(300) == 0
    finally:
        if launch.poll() is None:
            launch.terminate()
            launch.wait(300)
    visit(page, "events")
    expect(page.locator("tbody tr", has_text=re.compile("Moved.*to ag2"))).to_have_count(1)
