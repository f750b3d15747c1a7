"""The screen of `podwright top`, driven by keys and mouse, as a terminal of 80x24 shows it.

`seen/*.txt` are screens as they should be; WRITE_SCREENS=1 writes them anew.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Input

from podwright.top import TopApp
from tests.top.pod import NOW, Pod, snapshot

SEEN = Path(__file__).parent / "seen"
pytestmark = pytest.mark.asyncio


def app_of(pod: Pod) -> TopApp:
    return TopApp(pod, "podwright top   test", refresh_interval=0.2, clock=lambda: NOW)


def screen(app: TopApp) -> str:
    """What is on it, a line each."""
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(part.text for part in strip).rstrip() for strip in strips) + "\n"


async def until(pilot: Pilot[None], what: Callable[[], object]) -> None:
    for _ in range(6000):
        if what():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(screen(pilot.app))  # type: ignore[arg-type]


def text(pilot: Pilot[None]) -> str:
    assert isinstance(pilot.app, TopApp)
    return screen(pilot.app)


def names(app: TopApp) -> list[str]:
    return [str(key.value) for key in app.query_one(DataTable).rows]


@pytest.mark.parametrize(
    ("name", "keys"),
    [("partitions", ()), ("queue", ("2",)), ("machines", ("3",)), ("explained", ("2", "x"))],
)
async def test_each_tab_looks_like_its_recorded_screen(name: str, keys: tuple[str, ...]) -> None:
    app = app_of(Pod())
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "alice" in text(pilot))
        for key in keys:
            await pilot.press(key)
            await until(pilot, lambda: key != "2" or "carol" in text(pilot))  # noqa: B023
        path = SEEN / f"{name}.txt"
        if os.environ.get("WRITE_SCREENS"):
            await asyncio.sleep(5)  # whatever still moves stands by then
            path.write_text(text(pilot))
        wanted = path.read_text()
        await until(pilot, lambda: text(pilot) == wanted)


async def test_a_change_of_the_pod_is_drawn_without_a_key() -> None:
    pod = Pod()
    app = app_of(pod)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "AAAABBBB" in text(pilot))
        later = snapshot()
        later["partitions"]["new"] = {**later["partitions"]["eval"], "created": 30}
        pod.seen = later
        await until(pilot, lambda: "new" in names(app))
        pod.away = True
        await until(pilot, lambda: "the server does not answer" in text(pilot))
        assert "train" in names(app)  # what was last known stays
        pod.away = False
        await until(pilot, lambda: "does not answer" not in text(pilot))


async def test_rows_are_filtered_and_sorted_by_keys() -> None:
    app = app_of(Pod())
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: names(app) == ["eval", "train"])
        await pilot.press("slash", *"bob")
        await until(pilot, lambda: names(app) == ["eval"])
        await pilot.press("enter", "x")  # the words stay, and keys are keys again
        await until(pilot, lambda: "eval: no block" in text(pilot))
        await pilot.press("escape", "escape")
        await until(pilot, lambda: names(app) == ["eval", "train"])
        assert not app.query_one("#filter", Input).display
        for _ in range(3):
            await pilot.press("s")
        await until(pilot, lambda: names(app) == ["train", "eval"])  # by owner


async def test_a_click_opens_a_tab_and_sorts_by_a_heading() -> None:
    app = app_of(Pod())
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "train" in names(app))
        await until(pilot, lambda: app.query_one("#t2").region.width)
        await pilot.pause()
        await pilot.click("#t2")
        await until(pilot, lambda: "m7" in names(app))
        assert names(app)[0] == "m0"
        await pilot.click(DataTable, offset=(3, 0))  # its heading: the other way round
        await until(pilot, lambda: names(app)[0] == "m7")


async def test_draining_and_resuming_ask_for_confirmation() -> None:
    pod = Pod()
    app = app_of(pod)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await until(pilot, lambda: "train" in names(app))
        await pilot.press("d")
        await until(pilot, lambda: "key 3" in text(pilot))
        await pilot.press("3")
        await until(pilot, lambda: "m0" in names(app))
        await pilot.press("d")
        await until(pilot, lambda: "Drain m0?" in text(pilot))
        assert "train" in text(pilot)  # what lies on it
        await pilot.press("n")
        await until(pilot, lambda: "Drain m0?" not in text(pilot))
        assert pod.done == []
        await pilot.press("d")
        await until(pilot, lambda: "Drain m0?" in text(pilot))
        await pilot.press("y")
        await until(pilot, lambda: pod.done == [("drain", "m0")])
        await until(pilot, lambda: "Drain m0?" not in text(pilot))
        await pilot.press("r")
        await until(pilot, lambda: "serve again" in text(pilot))
        await pilot.press("y")
        await until(pilot, lambda: pod.done == [("drain", "m0"), ("resume", "m0")])


async def test_a_small_and_a_large_terminal_show_partitions_and_queue() -> None:
    for size in ((40, 12), (200, 60)):
        pod = Pod()
        pod.seen = snapshot(domains=16, size=64)
        app = app_of(pod)
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: "train" in names(app))  # noqa: B023
            await pilot.press("2")
            await until(pilot, lambda: "carol" in text(pilot))


async def test_an_answer_that_arrives_after_the_widgets_are_gone_is_dropped() -> None:
    pod = Pod()
    app = app_of(pod)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "train" in names(app))
    pod.seen = snapshot(domains=1)
    await asyncio.to_thread(app._while_open, app._show, pod.snapshot(), "", 0.2)
    assert app.snapshot == snapshot()
