"""What is drawn where, and in which colours: each state, bordering partitions, a phone, a large
pod."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from tools.page_pictures import NOW, View, pod_scene, shown

from tests.outer.page.test_page import VIEWS

pytestmark = pytest.mark.outer
STATES = ("FREE", "IN_USE", "RESERVED", "RESETTING", "DRAINED", "DOWN")
_LOOKS = """() => Object.fromEntries([...document.querySelectorAll('svg[role=group] .device')].map((one) => {
  const style = getComputedStyle(one);
  const shape = document.querySelector(`#${style.fill.match(/#([\\w-]+)/)?.[1] ?? 'none'}`);
  const ground = shape && getComputedStyle(shape.querySelector('.ground')).fill;
  const marks = shape && [...shape.querySelectorAll('line, circle')].map((mark) => mark.outerHTML
    + getComputedStyle(mark).stroke + getComputedStyle(mark).fill).join();
  return [one.dataset.key, { look: [style.fill, style.stroke, style.strokeDasharray, ground, marks].join('|'),
    colour: marks || style.fill, shape: shape?.id ?? (style.stroke === 'none' ? 'full' : 'empty') }];
}))"""  # noqa: E501


def large_scene(domains: int = 16) -> dict[str, dict[str, Any]]:
    """A pod of so many link domains, each as that of `pod_scene`."""
    topics = pod_scene()
    devices = {}
    for domain in range(domains):
        for at in range(64):
            machine, index, state, owner, *more = topics["devices"][f"pod/0/{at}"]
            name = f"r{domain:02}-{machine[-2:]}"
            owner = f"{owner}-{domain}" if owner else ""
            devices[f"pod/{domain}/{at}"] = [name, index, state, owner, *more]
    partitions = {
        f"{name}-{domain}": {**partition, "domains": [domain]}
        for name, partition in topics["partitions"].items()
        for domain in range(domains)
    }
    pod = {**topics["clusters"]["pod"], "size": 64 * domains, "domains": [64] * domains}
    return {**topics, "devices": devices, "partitions": partitions, "clusters": {"pod": pod}}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("by", ["partition", "user", "job", "load", "state"])
def test_every_state_has_a_colour_and_a_shape_of_its_own(
    browser: Browser, by: str, scheme: str
) -> None:
    topics = pod_scene()
    topics["devices"] = {
        f"pod/0/{at}": ["m1", at, state, "bert" if state == "IN_USE" else "", "pod"]
        for at, state in enumerate(STATES)
    }
    with shown(browser, View("index.html", f"/pod?by={by}", scheme), topics) as page:
        expect(page.locator("svg[role=group] .device")).to_have_count(len(STATES))
        looks = page.evaluate(_LOOKS).values()
        for what in ("look", "colour", "shape"):
            assert len({look[what] for look in looks}) == len(STATES), (what, looks)
        keys = page.locator(".legend .key")
        assert keys.count() == len(STATES)


def test_bordering_partitions_differ_in_hue_and_the_legend_names_all(browser: Browser) -> None:
    topics = large_scene(4)
    with shown(browser, View("index.html", "/pod"), topics) as page:
        expect(page.locator("svg[role=group] .device")).to_have_count(256)
        classes = page.evaluate(
            "() => Object.fromEntries([...document.querySelectorAll('svg[role=group] .device')]"
            ".map((one) => [one.dataset.key, one.getAttribute('class')]))"
        )
        hues = {
            key: next((w for w in text.split() if w[0] == "h"), "") for key, text in classes.items()
        }
        owners = {key: row[3] for key, row in topics["devices"].items()}
        bordering = 0
        for domain in range(4):
            for at in range(64):
                here = f"pod/{domain}/{at}"
                for there in (f"pod/{domain}/{at + 1}", f"pod/{domain}/{at + 4}"):
                    if owners[here] and owners.get(there) and owners[here] != owners[there]:
                        bordering += 1
                        assert hues[here] != hues[there], (here, there)
        assert bordering > 20
        looks: dict[str, tuple[str, ...]] = {}
        for key, text in classes.items():
            if owners[key]:
                drawn = _hue(text)
                assert looks.setdefault(owners[key], drawn) == drawn
        assert len(set(looks.values())) == len(topics["partitions"]) == 20
        legend = page.locator(".legend").inner_text()
        assert all(name in legend for name in topics["partitions"])


def test_what_the_legend_leaves_out_is_counted_and_named_by_mouse_and_keys(
    browser: Browser,
) -> None:
    """Of 80 partitions the largest are in the legend; a small one is named at its devices."""
    with shown(browser, View("index.html", "/pod"), large_scene()) as page:
        expect(page.locator("svg[role=group] .device")).to_have_count(1024)
        legend = page.locator(".legend")
        box = legend.bounding_box()
        assert box is not None
        scrolled = legend.evaluate("one => one.scrollHeight > one.clientHeight + 1")
        assert not scrolled, "nothing of it is hidden"
        expect(legend.locator("a")).to_have_text("70 more")
        cell = page.locator("[data-key='pod/9/24']")
        cell.hover()
        expect(page.locator("text.tip")).to_have_text("sweep-1-9 · bob")
        expect(page.locator("svg[role=group] .device.same")).to_have_count(4)
        page.mouse.move(5, 5)
        expect(page.locator("text.tip")).to_have_count(0)
        page.locator("[data-key='pod/0/0']").focus()
        for _ in range(20):
            page.keyboard.press("ArrowRight")
        expect(page.locator("text.tip")).to_have_text("vision-0 · alice")
        expect(page.locator("#about")).to_contain_text("by partition vision-0 of alice")
        legend.locator("a").click()
        expect(page.locator("h1")).to_have_text("Partitions")


def test_why_a_request_waits_is_drawn_on_the_map_and_not_in_the_colour_of_a_failure(
    browser: Browser,
) -> None:
    with shown(browser, View("index.html", "/pod?way=w17"), pod_scene()) as page:
        cells = page.locator("svg[role=group] .device")
        expect(page.locator("svg[role=group] .device.way")).to_have_count(16 + 4)
        expect(page.locator("svg[role=group] .device.ours")).to_have_count(8)
        expect(page.locator("svg[role=group] .device.faint")).to_have_count(64 - 28)
        expect(page.locator("#way h2")).to_have_text("Why alice's request w17 waits")
        expect(page.locator("#way")).to_contain_text("rack1-14 is drained: fan 3 is loud")
        labels = page.locator(".pod text.label", has_text="until 15:14")
        expect(labels.first).to_contain_text("bert · ruth")
        strokes = page.locator("svg[role=group] .device.way, .device.ours").evaluate_all(
            "found => found.map((one) => getComputedStyle(one).stroke)"
        )
        bad = page.evaluate("getComputedStyle(document.body).getPropertyValue('--bad')").strip()
        assert len(set(strokes)) == 1
        assert bad == "#b91c1c"
        assert "rgb(185, 28, 28)" not in strokes
        expect(page.locator(".legend")).to_contain_text("in the way")
        expect(page.locator(".legend")).to_contain_text("kept for it")
        page.click("text=show it no more")
        expect(cells.first).to_be_visible()
        expect(page.locator(".device.way")).to_have_count(0)


def test_the_hour_on_the_front_page_shows_the_pod_of_a_minute(browser: Browser) -> None:
    with shown(browser, View("index.html", "/pod"), pod_scene()) as page:
        said = page.locator(".hour output")
        expect(said).to_have_text("the pod now")
        expect(page.locator(".hour rect.used")).to_have_count(60)
        page.click("[data-key='pod/0/20']")
        expect(page.locator(".side button")).to_have_count(3)
        page.locator("#hour").focus()
        page.keyboard.press("ArrowLeft")
        expect(said).to_have_text("the pod at 21/09/2026, 14:13:00")
        expect(page.locator(".past .map")).to_be_visible()
        expect(page).to_have_url(f"http://pod.example/pod?at={NOW - 60}")
        expect(page.locator("svg[role=group] .device.IN_USE")).to_have_count(40)
        page.click("[data-key='pod/0/0']")
        expect(page.locator(".side h2")).to_have_text("Partition bert")
        expect(page.locator(".side button")).to_have_count(0)  # what was cannot be changed
        page.get_by_role("button", name="Now").click()
        expect(said).to_have_text("the pod now")
        expect(page.locator(".side button")).to_have_count(3)
        assert page.evaluate("() => location.search") == ""


@pytest.mark.parametrize("width", [1440, 390])
def test_the_head_has_five_places_and_the_fifth_opens_the_others(
    browser: Browser, width: int
) -> None:
    with shown(browser, View("index.html", "/pod", "light", width, 844), pod_scene()) as page:
        places = page.locator("#views > a, #views summary")
        expect(places).to_have_text(["Pod", "Queue", "Partitions", "Machines", "More"])
        boxes = places.evaluate_all(
            "found => found.map((one) => one.getBoundingClientRect()).map((b) => [b.left, b.right])"
        )
        assert all(0 <= left < right <= width for left, right in boxes), boxes
        page.click("#views summary")
        menu = page.locator("#views details a")
        expect(menu).to_have_count(len(VIEWS) - 4)
        for link in menu.all():
            expect(link).to_be_in_viewport(ratio=1)
        page.keyboard.press("Escape")
        expect(menu.first).not_to_be_visible()
        page.click("#views summary")
        menu.get_by_text("Events").click()
        expect(page.locator("h1")).to_have_text("Events")
        expect(menu.first).not_to_be_visible()


def _hue(classes: str) -> tuple[str, ...]:
    """Hue and hatch of a device's class."""
    return tuple(word for word in classes.split() if word[0] in "hk" and word[1:].isdigit())


def test_a_pod_of_64_uses_the_width_of_the_screen_and_names_who_has_what(browser: Browser) -> None:
    with shown(browser, View("index.html", "/pod"), pod_scene()) as page:
        expect(page.locator("svg[role=group] .device")).to_have_count(64)
        column, drawn = (page.locator(f".pod{part}").bounding_box() for part in ("", " .domain"))
        assert column is not None
        assert drawn is not None
        assert drawn["width"] > 0.9 * column["width"]
        labels = page.locator(".pod text.label").all_text_contents()
        named = [label for label in labels if label]
        assert named.count("bert · ruth") == 4  # at each of its machines
        assert named.count("slurm_4711 · carol") == 2
        assert len(named) == 10
        waiting = page.locator(".numbers div", has_text="waiting").locator("dd")
        expect(waiting).to_have_text("2")  # a request and Slurm's job
        page.set_viewport_size({"width": 390, "height": 844})
        expect(page.locator(".pod text.label")).to_have_count(0)


def test_readings_are_drawn_and_shown_for_the_chosen_minute(browser: Browser) -> None:
    view = View("index.html", f"/time?at={NOW - 1200}")
    with shown(browser, view, pod_scene()) as page:
        charts = page.locator(".reading")
        expect(charts).to_have_count(4)
        expect(charts.locator("strong")).to_have_text(["59 %", "78 °C", "22.3 kW", "0"])
        expect(page.locator("#summary")).to_contain_text("4 devices down from 13:40 to 13:48")
        page.locator("#scrub").fill(str(NOW - 60 * 30))
        expect(charts.locator("strong").last).to_have_text("1")


def test_a_thousand_devices_need_no_scrolling(browser: Browser) -> None:
    with shown(browser, View("index.html", "/pod"), large_scene()) as page:
        expect(page.locator("svg[role=group] .device")).to_have_count(1024)
        seen = page.evaluate(
            """() => {
              const map = document.querySelector('.pod').getBoundingClientRect();
              const page = document.documentElement;
              return { page: [page.scrollWidth, page.scrollHeight],
                out: [...document.querySelectorAll('svg[role=group] .device')].filter((one) => {
                  const box = one.getBoundingClientRect();
                  return box.bottom > map.bottom + 1 || box.right > map.right + 1 || box.top < map.top;
                }).length, bottom: map.bottom, legend: document.querySelector('.legend').getBoundingClientRect().bottom };
            }"""  # noqa: E501
        )
        assert seen["out"] == 0, seen
        assert seen["page"] == [1440, 900]
        assert seen["legend"] <= 900


def test_while_an_array_runs_the_queue_shows_whose_turn_it_is_and_what_people_wait_for(
    browser: Browser,
) -> None:
    scene = pod_scene()
    task = {**scene["jobs"]["slurm/4712"], "asked": "8 devices of pod"}
    scene["jobs"] = {
        f"slurm/9_{at}": {**task, "job": f"9_{at}", "place": at, "reserved": 8 * (at == 1)}
        for at in range(1, 41)
    }
    turn = "it is the turn of job 9_1 of slurm first: 8 of 8 devices that are kept for it"
    scene["jobs"]["slurm/9_1"]["starts"] = NOW + 600
    scene["waiters"]["w17"] |= {"reserved": 0, "needs": turn}
    for key, row in scene["devices"].items():
        if row[2] == "RESERVED":
            scene["devices"][key] = [*row[:5], "job 9_1 of slurm"]
    with shown(browser, View("index.html", "/pod"), scene) as page:
        lines = page.locator(".queue ol[aria-label=slurm] li")
        expect(lines).to_have_count(2)
        expect(lines.first).to_contain_text("8 devices are kept for it")
        expect(lines.last).to_contain_text("job 9_2 and 38 more tasks")
        person = page.locator(".queue ol[aria-label=people] li")
        expect(person).to_contain_text(turn)
        page.click("#views a[href='/line']")
        turns = page.locator(".turns li")
        expect(turns).to_have_count(1)
        expect(turns).to_contain_text("dave (slurm), job 9_1: 8 devices of pod; 8 devices are kept")
        expect(page.locator("[data-row=w17]")).to_contain_text("the turn of job 9_1")
        page.click("text=show the place")
        expect(page.locator("svg[role=group] .device.ours")).to_have_count(8)
        expect(page.locator("#way h2")).to_have_text("Why dave's job 9_1 of slurm waits")


def folded_scene(domains: int = 2048) -> dict[str, dict[str, Any]]:
    """A pod of so many link domains of 64 devices, in numbers alone."""
    topics = pod_scene()
    pod = {**topics["clusters"]["pod"], "size": 64 * domains, "domains": []}
    counts: dict[str, Any] = {f"pod/{at}": [64, 0, 0, 0, 0, 0] for at in range(domains)}
    counts |= {"pod/3": [16, 48, 0, 0, 0, 0], "pod/4": [0, 56, 0, 0, 4, 4]}
    totals = {"partitions": {"count": 5}, "problems": {"count": 150}}
    return {**topics, "clusters": {"pod": pod}, "devices": {}, "domains": counts, "totals": totals}


def test_each_domain_of_a_large_pod_is_a_tile_that_tells_its_numbers(browser: Browser) -> None:
    with shown(browser, View("index.html", "/pod"), folded_scene()) as page:
        tiles = page.locator(".tile button")
        expect(tiles).to_have_count(2048)
        expect(page.locator("[data-open='pod/4'] .share")).to_have_count(3)
        page.locator("[data-open='pod/4']").hover()
        told = "Link domain 4 of pod: 56 in use, 4 drained, 4 down. Show its devices"
        expect(page.locator("#about")).to_have_text(told)
        page.locator("[data-open='pod/0']").focus()
        for key in ("ArrowRight", "ArrowDown", "ArrowUp", "ArrowRight", "ArrowRight"):
            page.keyboard.press(key)
        expect(page.locator("#about")).to_contain_text("48 in use")
        expect(page.locator(".numbers")).to_contain_text("131,072")
        expect(page.locator(".problems h2")).to_have_text("150 problems")
        expect(page.locator(".problems a", has_text="149 more")).to_be_visible()
        assert tiles.evaluate_all("all => all.filter((one) => one.tabIndex === 0).length") == 1


@pytest.mark.parametrize("view", [*VIEWS, "partitions/bert", "login"])
def test_every_view_fits_a_phone_without_scrolling_sideways(browser: Browser, view: str) -> None:
    path = f"/{view}?at={NOW - 1200}" if view == "time" else f"/{view}"
    with shown(browser, View("index.html", path, "light", 390, 844), pod_scene()) as page:
        expect(page.locator("h1")).to_have_count(1)
        page.wait_for_timeout(100)
        assert page.evaluate("() => document.documentElement.scrollWidth") == 390
        lost = page.locator("button:visible, main a:visible").evaluate_all(
            "found => found.filter((one) => one.getBoundingClientRect().right > 391).map(String)"
        )
        assert lost == [], "nobody scrolls sideways for a button"
        header = page.locator("header").bounding_box()
        assert header is not None
        assert header["height"] < 60
        _reachable(page)


def _reachable(page: Page) -> None:
    """Every button and link can be brought into the screen's width, and has a size."""
    for button in page.locator(
        "button:visible, header > a:visible, #views a:visible, select:visible, input:visible"
    ).all():
        button.scroll_into_view_if_needed()
        box = button.bounding_box()
        assert box is not None
        assert box["x"] >= -1, (button.inner_text(), box)
        assert box["x"] + box["width"] <= 391, (button.inner_text(), box)
        assert min(box["width"], box["height"]) >= 12
