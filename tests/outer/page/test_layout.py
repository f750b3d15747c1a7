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


def test_other_pods_are_one_line_above_the_map(browser: Browser) -> None:
    topics = pod_scene()
    topics["pods"] = {
        name: {"url": f"https://{name}.example/", "state": state}
        for name, state in (("east", "ok"), ("west", "unreachable"))
    }
    with shown(browser, View("index.html", "/pod"), topics) as page:
        box = page.locator(".other-pods").bounding_box()
        assert box is not None
        assert box["height"] < 40, box


def test_partitions_that_border_differ_in_hue_and_the_legend_has_all(browser: Browser) -> None:
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


def test_what_drivers_measured_is_drawn_and_said_for_the_chosen_minute(browser: Browser) -> None:
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


@pytest.mark.parametrize("view", [*VIEWS, "partitions/bert", "login"])
def test_a_phone_shows_it_all(browser: Browser, view: str) -> None:
    path = f"/{view}?at={NOW - 1200}" if view == "time" else f"/{view}"
    with shown(browser, View("index.html", path, "light", 390, 844), pod_scene()) as page:
        expect(page.locator("h1")).to_have_count(1)
        page.wait_for_timeout(100)
        assert page.evaluate("() => document.documentElement.scrollWidth") == 390
        header = page.locator("header").bounding_box()
        assert header is not None
        assert header["height"] < 60
        _reachable(page)


def _reachable(page: Page) -> None:
    """Every button and link can be brought into the screen's width, and has a size."""
    for button in page.locator(
        "button:visible, header a:visible, select:visible, input:visible"
    ).all():
        button.scroll_into_view_if_needed()
        box = button.bounding_box()
        assert box is not None
        assert box["x"] >= -1, (button.inner_text(), box)
        assert box["x"] + box["width"] <= 391, (button.inner_text(), box)
        assert min(box["width"], box["height"]) >= 12
