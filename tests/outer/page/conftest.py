"""Debian's Chromium, driven by Playwright, and a server to look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.ports import free_port
from tests.whole.conftest import Pod, make_pod

__all__ = ["make_pod"]
CHROMIUM = "/usr/bin/chromium"
#: Its own five seconds are few on a busy machine.
expect.set_options(timeout=60_000)


class Site(Pod):
    """A server with its page."""

    port = 0

    @property
    def address(self) -> str:
        """The page's."""
        return f"http://127.0.0.1:{self.port}"

    def link(self) -> str:
        """A one-time link for this user."""
        return self.good("podwright", "web", "--no-open").strip()


def pod_file(folder: Path, domains: int) -> str:
    """A cluster file of so many link domains of 64 simulated IPUs."""
    lines = ['name = "large"', 'family = "ipu"', 'topology = "looped"', "simulated = true"]
    for domain in range(domains):
        machines = ", ".join(f'"m{domain}-{machine}"' for machine in range(16))
        lines += ["[[link_domains]]", f"machines = [{machines}]"]
    file = folder / f"pod{domains}.toml"
    file.write_text("\n".join(lines) + "\n")
    return str(file)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for all tests of a module: its driver runs an event loop, which other tests must not
    meet."""
    with sync_playwright() as driver:
        args = ["--no-sandbox", "--host-resolver-rules=MAP *.example 127.0.0.1"]
        found = driver.chromium.launch(executable_path=CHROMIUM, args=args, timeout=300_000)
        yield found
        found.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A tab of a new profile; what it complains of fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(60_000)
    tab = context.new_page()
    wrong: list[str] = []
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    yield tab
    context.close()
    # What the server refused, and that it was gone, is what some tests are about.
    assert [text for text in wrong if "Failed to load resource" not in text] == []


@pytest.fixture
def make_site(tmp_path: Path) -> Iterator[Callable[..., Site]]:
    """Starts servers with a page: `make_site("--preset", "pod16")`."""
    sites: list[Site] = []

    def make(*arguments: str, before: Callable[[Site], None] | None = None) -> Site:
        folder = tmp_path / f"site{len(sites)}"
        folder.mkdir(mode=0o700)
        port = free_port()
        site = Site(folder, "--http-port", str(port), *arguments)
        site.port = port
        sites.append(site)
        if before is not None:
            before(site)
        site.start()
        return site

    yield make
    for site in sites:
        site.stop()
