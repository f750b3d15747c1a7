"""The strip of problems in a real browser: a line for each of the states that need somebody."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from playwright.sync_api import Browser, Page, expect
from tools.page_pictures import NOW, View, pod_scene, shown

from podwright.client import Client, UnixTransport
from podwright.page._problems import problems
from podwright.wire import DeviceList, ListRequest
from tests.outer.page.conftest import Site
from tests.outer.page.test_page import live, visit
from tests.page.test_problems import PLANTED, healthy
from tests.whole.conftest import BIN
from tests.whole.machines import SILENCE, Machines

pytestmark = pytest.mark.outer
STRIP = ".problems li[data-kind]"


def planted(kind: str) -> dict[str, Any]:
    """The problem of a pod in which one state was planted."""
    topics: dict[str, dict[str, Any]] = healthy()
    for topic, items in PLANTED[kind][0].items():
        topics[topic] = {**topics[topic], **items}
    return problems(topics, NOW)


def all_fourteen() -> dict[str, Any]:
    """One problem of each kind, the gravest first."""
    found = {key: value for kind in PLANTED for key, value in planted(kind).items()}
    grave = ("everybody", "work", "later")
    return dict(sorted(found.items(), key=lambda item: grave.index(item[1]["gravity"])))


def lines_in_sight(page: Page) -> list[str]:
    """The kinds whose line and command lie whole on the screen, with nothing over them."""
    seen: list[str] = page.evaluate(
        """() => [...document.querySelectorAll('.problems li[data-kind]')].filter((line) =>
          [line.querySelector('p'), line.querySelector('code')].every((part) => {
            const box = part.getBoundingClientRect();
            const at = (x, y) => part.contains(document.elementFromPoint(x, y));
            return at(box.left + 2, box.top + 2) && at(box.right - 2, box.bottom - 2);
          })).map((line) => line.dataset.kind)"""
    )
    return seen


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_fourteen_problems_have_fourteen_lines_on_one_screen(browser: Browser, scheme: str) -> None:
    scene = {**pod_scene(), "problems": all_fourteen()}
    with shown(browser, View("index.html", "/pod", scheme), scene) as page:
        expect(page.locator(STRIP)).to_have_count(14)
        assert lines_in_sight(page) == [value["kind"] for value in scene["problems"].values()]
        expect(page.locator(".problems h2")).to_have_text("14 problems")
        expect(page.locator(".problems a[href='/problems']")).to_have_count(0)
        first = page.locator(STRIP).first
        expect(first).to_contain_text("stops everybody The server is read only")
        grounds = page.locator(STRIP).evaluate_all(
            "lines => lines.map((line) => getComputedStyle(line).backgroundColor)"
        )
        assert grounds.count(grounds[0]) == 1, "what stops everybody looks like nothing else"
        expect(page.locator("svg[role=group] .device").first).to_be_in_viewport()


def test_problems_beyond_a_screen_are_counted_and_a_link_shows_all(browser: Browser) -> None:
    more = {
        f"partition-error/p{at}": {**planted("partition-error")["partition-error/p1"], "about": at}
        for at in range(2, 32)
    }
    scene = {**pod_scene(), "problems": {**more, **all_fourteen()}}
    with shown(browser, View("index.html", "/pod"), scene) as page:
        expect(page.locator(STRIP)).to_have_count(14)
        assert set(lines_in_sight(page)) == set(PLANTED), "each kind has a line"
        page.click("text=30 more")
        expect(page.locator("h1")).to_have_text("Problems")
        expect(page.locator(STRIP)).to_have_count(44)
    with shown(browser, View("index.html", "/pod", "light", 390, 844), scene) as page:
        expect(page.locator(STRIP)).to_have_count(4)
        expect(page.locator(STRIP).first).to_have_attribute("data-kind", "partition-error")
        assert len(lines_in_sight(page)) == 4
        page.click("text=40 more")
        expect(page.locator(STRIP)).to_have_count(44)


@pytest.mark.parametrize("kind", PLANTED)
def test_each_problem_has_a_line_with_its_cause_and_command_at_the_top(
    browser: Browser, kind: str
) -> None:
    _, words, command = PLANTED[kind]
    scene = {**pod_scene(), "problems": planted(kind)}
    with shown(browser, View("index.html", "/pod"), scene) as page:
        expect(page.locator(STRIP)).to_have_count(1)
        line = page.locator(STRIP)
        expect(line).to_have_attribute("data-kind", kind)
        expect(line).to_contain_text(words.partition(":")[0])
        expect(line.locator("code")).to_contain_text(command)
        box = line.bounding_box()
        assert box is not None
        assert box["y"] < 200, "above everything else"


def test_a_healthy_pod_shows_no_problem(make_site: Callable[..., Site], page: Page) -> None:
    site = make_site("--preset", "pod16")
    page.goto(site.link())
    live(page)
    expect(page.locator("svg[role=group] .device.FREE")).to_have_count(16)
    expect(page.locator(".problems li")).to_have_count(0)


def test_drained_machines_in_use_differ_from_empty_ones_and_both_show_the_reason(
    make_site: Callable[..., Site], page: Page
) -> None:
    site = make_site("--preset", "pod16")
    site.good("vipu", "create", "partition", "p1", "--size", "4")
    with Client(UnixTransport(str(site.socket))) as client:
        rows = cast(DeviceList, client.call("ListDevices", ListRequest())).devices
    (used,) = {row.device.machine for row in rows if row.partition == "p1"}
    empty = next(row.device.machine for row in rows if row.device.machine != used)
    page.goto(site.link())
    live(page)
    for machine in (used, empty):
        site.good("vipu-admin", "drain", "machine", machine, "--reason", "its fan")
    expect(page.locator("[data-kind=drained-used]")).to_contain_text(
        f"Machine {used} is drained and still in use: drained by root: its fan; "
        "it waits for p1 of root to end"
    )
    expect(page.locator("[data-kind=drained-empty]")).to_contain_text(f"Machine {empty} is drained")
    expect(page.locator("svg[role=group] .device.leaving")).to_have_count(4)
    site.good("vipu-admin", "resume", "machine", empty)
    site.good("vipu-admin", "resume", "machine", used)
    expect(page.locator(".problems li")).to_have_count(0)


def test_the_map_shows_only_devices_with_a_problem(browser: Browser) -> None:
    scene = pod_scene()
    scene["devices"]["pod/0/5"][2] = "DOWN"
    scene["partitions"]["vision"] |= {"state": "ERROR", "errors": ["a link is down"]}
    scene["problems"] = problems(scene, NOW)
    ill = {"pod/0/5"}
    error = {key for key, row in scene["devices"].items() if row[3] == "vision"}
    drained = {key for key, row in scene["devices"].items() if row[0] == "rack1-14"}
    expected = {
        "ill-device": ill, "partition-error": error, "drained-empty": drained,
        "any": ill | error | drained, "": set(scene["devices"]),
    }  # fmt: skip
    clear = (
        "all => all.filter(each => !each.classList.contains('faint')).map(each => each.dataset.key)"
    )
    with shown(browser, View("index.html", "/pod"), scene) as page:
        cells = page.locator("svg[role=group] .device")
        values = page.locator("#problem option").evaluate_all("all => all.map(each => each.value)")
        assert set(values) == set(expected)
        for kind, keys in expected.items():
            page.select_option("#problem", kind)
            assert set(cells.evaluate_all(clear)) == keys, kind
        page.select_option("#problem", "any")
        expect(page.locator("#matching")).to_have_text(f"{len(expected['any'])} of 64 devices")
        page.fill("#find", "rack1-14")
        assert set(cells.evaluate_all(clear)) == drained, "both filters count"
        assert page.evaluate("() => location.search") == "?find=rack1-14&problem=any"
    with shown(browser, View("index.html", "/pod?problem=ill-device"), scene) as page:
        cells = page.locator("svg[role=group] .device")
        expect(cells).to_have_count(64)
        assert set(cells.evaluate_all(clear)) == ill, "the address has the filter"
    for user, machine in (("alice", "rack1-05"), ("4711", "rack1-11")):
        with shown(browser, View("index.html", f"/pod?find={user}"), scene) as page:
            cells = page.locator("svg[role=group] .device")
            expect(cells).to_have_count(64)
            names = {scene["devices"][key][0] for key in cells.evaluate_all(clear)}
            assert machine in names
            assert len(names) == 2


def test_the_panel_shows_what_the_driver_measures_and_nothing_else(browser: Browser) -> None:
    scene = pod_scene()
    scene["readings"] = {"pod/0/20": {"load": "97 %", "power": "610 W", "temperature": "71 °C"}}
    with shown(browser, View("index.html", "/pod"), scene) as page:
        panel = page.locator(".side .facts")
        page.click("[data-key='pod/0/20']")
        expect(panel).to_contain_text("Use97 %Power610 WTemperature71 °C")
        expect(panel).not_to_contain_text("Memory")
        page.click("[data-key='pod/0/21']")
        expect(panel).to_contain_text("device 1")
        expect(panel).not_to_contain_text("Power")


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    for name in ("right", "wrong"):
        (tmp_path / f"{name}.key").write_text(f"a key that is {name}, and long enough\n")
        (tmp_path / f"{name}.key").chmod(0o600)
    found = Machines(tmp_path)
    yield found
    found.end()


def test_a_silent_agent_differs_from_one_with_another_key(
    make_site: Callable[..., Site], page: Page, machines: Machines, tmp_path: Path
) -> None:
    keys = [tmp_path / "right.key", tmp_path / "wrong.key"]
    site = make_site("--agent-silence", str(SILENCE), "--agent-key", str(keys[0]), "-a", "lo")
    for name in ("m1", "m2"):
        machines.start(name, "--agent-key", str(keys[0]))
        port = str(machines.ports[name])
        site.good("vipu-admin", "create", "agent", name, "--host", "127.0.0.1", "--port", port)
    site.good("vipu-admin", "create", "cluster", "c", "--agents", "m1,m2")
    page.goto(site.link())
    live(page)
    expect(page.locator("svg[role=group] .device.FREE")).to_have_count(8)
    machines.signal("m1", signal.SIGKILL)
    expect(page.locator("[data-kind=silent-agent]")).to_contain_text("Machine m1 does not answer")
    expect(page.locator("svg[role=group] .device.DOWN")).to_have_count(4)
    machines.signal("m2", signal.SIGKILL)
    machines.start("m2", "--agent-key", str(keys[1]))
    expect(page.locator("[data-kind=wrong-key]")).to_contain_text(
        "The agent of machine m2 does not accept this server"
    )


def test_a_server_with_open_pages_ends_without_a_traceback(
    make_site: Callable[..., Site], page: Page
) -> None:
    site = make_site("--preset", "pod16")
    page.goto(site.link())
    live(page)
    for _ in range(3):
        tab = page.context.new_page()
        tab.goto(f"{site.address}/partitions")
        live(tab)
    assert site.stop(signal.SIGTERM) == 0
    log = (site.folder / "server.log").read_text()
    assert "Traceback" not in log, log


def test_removing_a_held_partition_names_the_lease_that_it_ends(
    make_site: Callable[..., Site], page: Page
) -> None:
    site = make_site("--preset", "pod16")
    site.good("vipu", "create", "partition", "p1", "--size", "1")
    words = ("--launcher=local", "--vipu-partition=p1", "--num-replicas=1", "sleep", "600")
    sleeper = subprocess.Popen(
        [BIN / "poprun", "--allow-run-as-root=yes", *words],
        env=site.environ, cwd=site.folder, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        page.goto(site.link())
        expect(page.locator("#who")).to_contain_text("root (administrator)")
        visit(page, "leases")
        expect(page.locator("tbody")).to_contain_text("p1")
        visit(page, "partitions")
        page.click("[data-focus='Remove p1']")
        expect(page.locator("#ask")).to_contain_text("This is held")
        expect(page.locator("#ask code")).to_have_text("vipu remove partition p1 --force")
        expect(page.locator("#yes")).to_have_text("End this and remove")
        page.click("#yes")
        expect(page.locator("#main")).to_contain_text("There is no partition.")
        assert sleeper.wait(300) != 0
    finally:
        if sleeper.poll() is None:
            sleeper.terminate()
            sleeper.wait(300)
