"""The pictures of the page: the page's own files show a scene that is always the same, in Debian's
Chromium. `python -m tools.page_pictures` writes them, and what they were made from.

A picture's structure is the view's HTML with the style sheet: the same on every machine, whatever
its fonts. A test makes both anew, and fails where a view has changed and its picture has not.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from podwright.fabric import IPU
from podwright.page._problems import problems
from podwright.placement.fragmentation import fits

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

ROOT = Path(__file__).resolve().parent.parent
STATIC = ROOT / "src" / "podwright" / "page" / "static"
FOLDER = ROOT / "docs" / "pictures"
MANIFEST = FOLDER / "page.json"
NOW = 1_790_000_040  # seconds since 1970: when all pictures are taken
SITE = "http://pod.example"
#: What is there once the scene is drawn, where that is no row of a table.
_DRAWN = {"/pod": ".device", "/time": "#was .device"}
#: In the place of the stream: the scene, once.
_STREAM = """
delete globalThis.SharedWorker;
const answered = globalThis.fetch;
globalThis.fetch = (path, options) => (path !== '/live' ? answered(path, options)
  : Promise.resolve(new Response(new ReadableStream({ start(out) {
    out.enqueue(new TextEncoder().encode(%s));
  } }))));
"""


class Picture(NamedTuple):
    """structure: a digest of HTML and style. png: the picture."""

    structure: str
    png: bytes


class View(NamedTuple):
    """What is shown: a file of the page at an address, in one colour scheme, so many pixels wide
    and high."""

    file: str
    path: str
    scheme: str = "light"
    width: int = 1440
    height: int = 900


#: By picture: what it shows.
PICTURES: dict[str, View] = {
    "page-pod": View("index.html", "/pod"),
    "page-pod-dark": View("index.html", "/pod?by=user", "dark"),
    "page-pod-phone": View("index.html", "/pod", "light", 390, 844),
    "page-pod-phone-dark": View("index.html", "/pod", "dark", 390, 844),
    "page-line": View("index.html", "/line"),
    "page-partitions": View("index.html", "/partitions"),
    "page-partitions-phone": View("index.html", "/partitions", "light", 390, 844),
    "page-time": View("index.html", f"/time?at={NOW - 1200}"),
    "page-time-dark": View("index.html", f"/time?at={NOW - 1200}", "dark"),
    "page-time-phone": View("index.html", f"/time?at={NOW - 1200}", "light", 390, 844),
}


@contextlib.contextmanager
def shown(browser: Browser, view: View, topics: dict[str, dict[str, Any]]) -> Iterator[Page]:
    """The page's own files with these topics in place of a server, at the time `NOW`."""
    context = browser.new_context(
        viewport={"width": view.width, "height": view.height},
        color_scheme=view.scheme,  # type: ignore[arg-type]
        timezone_id="UTC",
        locale="en-GB",
        reduced_motion="reduce",
    )
    context.set_default_timeout(60_000)
    context.add_init_script(_STREAM % json.dumps(_event(topics)))
    page = context.new_page()
    page.clock.set_fixed_time(NOW)
    page.route("**/*", lambda route: _answer(route, view.file))
    page.goto(f"{SITE}{view.path}")
    page.wait_for_function("() => document.getElementById('state').textContent === 'live'")
    yield page
    context.close()


def pictures(browser: Browser) -> Iterator[tuple[str, Picture]]:
    """All pictures, by name."""
    for name, view in PICTURES.items():
        with shown(browser, view, pod_scene()) as page:
            yield name, _picture(page, view)


def _picture(page: Page, view: View) -> Picture:
    path = view.path.partition("?")[0]
    page.wait_for_selector(_DRAWN.get(path, "[data-row]"))
    if path == "/pod":
        page.locator(".device.IN_USE").nth(20).click()
    html = _settled(page)
    style = (STATIC / "style.css").read_text()
    structure = hashlib.sha256(f"{html}\n{style}".encode()).hexdigest()
    return Picture(structure, page.screenshot())


def _event(topics: dict[str, dict[str, Any]]) -> str:
    """The whole, as the server's stream has it."""
    return f"event: all\nid: 1\ndata: {json.dumps({'topics': topics})}\n\n"


def _settled(page: Page) -> str:
    """The view, once it has stayed the same for ten frames."""
    html, same = "", 0
    while same < 10:
        page.evaluate("() => new Promise(drawn => requestAnimationFrame(() => drawn()))")
        now = page.evaluate("() => document.body.outerHTML")
        html, same = now, same + 1 if now == html else 0
    return html


def alike(one: bytes, other: bytes) -> float:
    """How far two pictures are apart: 0 the same, 1 black and white. Small things, such as the
    shape of letters, do not count."""
    from PIL import Image, ImageChops, ImageStat

    small = [Image.open(io.BytesIO(png)).convert("RGB").resize((55, 36)) for png in (one, other)]
    return max(ImageStat.Stat(ImageChops.difference(*small)).mean) / 255


def _answer(route: Route, index: str) -> None:
    parts = urlsplit(route.request.url)
    if parts.path.startswith("/static/"):
        route.fulfill(path=STATIC / parts.path.removeprefix("/static/"))
    elif parts.path == "/me":
        me = {"name": "ruth", "role": "administrator", "key_login": True, "simulated": False}
        route.fulfill(json=me)
    elif parts.path == "/v1/history":
        route.fulfill(json=hour_scene())
    elif parts.path == "/v1/explain":
        route.fulfill(json=way_scene())
    elif parts.path == "/v1/history/at":
        topics = pod_scene()
        topics["clusters"]["pod"]["family"] = "composable"  # its drivers measure
        kept = {name: topics[name] for name in ("clusters", "devices", "partitions", "waiters")}
        route.fulfill(json={"time": NOW - 1200, "topics": kept})
    else:
        route.fulfill(path=STATIC / index)


def pod_scene() -> dict[str, dict[str, Any]]:
    """A pod of 64 on which four people work; one machine is drained, one request waits."""
    held = {"bert": (0, 16, "ruth"), "vision": (16, 8, "alice"), "sweep-1": (24, 4, "bob")}
    held |= {"sweep-2": (32, 4, "bob"), "slurm_4711": (40, 8, "carol")}
    devices: dict[str, Any] = {}
    for at in range(64):
        owner = next((n for n, (first, size, _) in held.items() if first <= at < first + size), "")
        state = "IN_USE" if owner else "DRAINED" if at // 4 == 13 else "FREE"
        row: list[Any] = [f"rack1-{at // 4 + 1:02}", at % 4, state, owner, "pod"]
        if state == "FREE" and at >= 56:
            row = [*row[:2], "RESERVED", "", "pod", "w17"]
        devices[f"pod/0/{at}"] = row
    free = [row[2] == "FREE" for row in devices.values()]
    machines = sorted({row[0] for row in devices.values()})
    partitions = {
        name: {
            "cluster": "pod", "allocation": "pod", "size": size, "gcds": 1, "replicas": 1,
            "domains": [0], "reconfigurable": False, "state": "ACTIVE", "operation": "IDLE",
            "errors": [], "owner": owner, "job": "4711 0 lab" if name.startswith("slurm") else "",
            "created": NOW - 900 * (number + 1), "until": NOW + 3600, "resets": 0,
        }
        for number, (name, (_, size, owner)) in enumerate(held.items())
    }  # fmt: skip
    waiter = {
        "place": 1, "owner": "alice", "state": "WAITING", "asked": "create partition of 16 IPUs",
        "needs": "16 devices: bert ends first", "priority": 0, "since": NOW - 420,
        "starts": NOW + 1800, "reserved": 8,
    }  # fmt: skip
    moving = {
        "partition": "sweep-2", "holder": "sweep.py on login1", "owner": "bob", "state": "HELD",
        "epoch": 7, "parent": "", "hosts": ["login1"], "waits_for": [], "move": True,
    }  # fmt: skip
    move = {"owner": "bob", "size": 4, "asked": True, "waiter": "w17", "to": "rack1-08"}
    job = {
        "place": 1, "scheduler": "slurm", "job": "4712", "owner": "dave",
        "asked": "32 devices of pod", "needs": "waits for 32 devices of pod: 12 are free",
        "priority": 1000, "since": NOW - 900, "cluster": "pod", "starts": 0, "reserved": 0,
    }  # fmt: skip
    drained = {
        "at": NOW - 5400, "who": "ruth", "what": "DrainMachine", "about": "rack1-14",
        "outcome": "OK", "detail": "",
    }  # fmt: skip
    topics: dict[str, Any] = {
        "clusters": {
            "pod": {
                "family": "ipu", "size": 64, "free": sum(free), "domains": [64],
                "machines": machines, "topology": "looped", "simulated": False,
                "drained": ["rack1-14"], "down": [],
                "drains": {
                    "rack1-14": {"reason": "fan 3 is loud", "who": "ruth", "at": NOW - 5400}
                },
            }
        },
        "machines": {}, "allocations": {}, "quotas": {}, "users": {}, "events": {"1": drained},
        "leases": {"l7": moving}, "moves": {"sweep-2": move},
        "devices": devices, "partitions": partitions, "waiters": {"w17": waiter},
        "jobs": {"slurm/4712": job},
        "fragments": {
            "pod": {"free": sum(free), "sizes": fits(IPU, [free]), "kept": {"w17": 8}}
        },
    }  # fmt: skip
    return {**topics, "problems": problems(topics, NOW)}


def way_scene() -> dict[str, Any]:
    """Why the request of the scene waits."""
    bert = {"partition": "bert", "owner": "ruth", "size": 16, "ends_in": 3600.0}
    return {
        "problem": "16 devices are not free together",
        "lines": [
            "12 are free, but scattered: the largest block is of 4",
            "partition bert of ruth has 16, ends in 3600 s according to its creator",
            "machine rack1-14 is drained: fan 3 is loud",
        ],
        "partitions": [bert], "drained": ["rack1-14"],
    }  # fmt: skip


def hour_scene() -> list[list[Any]]:
    """An hour in which a pod of 64 fills, and a machine fails for a while. Drivers measure."""
    points = []
    for minute in range(60):
        used = min(40, 10 + minute // 6 * 5)
        down = 4 if 25 <= minute < 33 else 0
        free = 64 - used - 12 - down
        counts = [free >> order for order in range(7)]
        counts[4] = max(0, (free - 16) >> 4)
        load = round(94 * used / 64, 1) if minute != 33 else 41.0
        measured = [load, 38 + used + minute % 3, 64 * 90 + used * (410 + minute % 7), down // 4]
        points.append(
            [
                NOW - 60 * (59 - minute),
                used,
                free,
                (minute >= 30) + (minute >= 50),
                down,
                0,
                counts,
                measured,
            ]
        )
    return points


def main() -> int:
    """Write all."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        made = dict(pictures(browser))
        browser.close()
    for name, picture in made.items():
        (FOLDER / f"{name}.png").write_bytes(picture.png)
    manifest = {
        name: {
            "structure": picture.structure,
            "png": hashlib.sha256(picture.png).hexdigest(),
        }
        for name, picture in made.items()
    }
    MANIFEST.write_text(json.dumps(manifest, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
