"""The pictures in the documentation show the views as they are."""

from __future__ import annotations

import hashlib
import json

import pytest
from playwright.sync_api import Browser
from tools.page_pictures import FOLDER, MANIFEST, PICTURES, alike, pictures

pytestmark = pytest.mark.outer
#: Fonts differ from machine to machine; a view that is another differs by more.
APART = 0.04


def test_no_view_has_changed_without_its_picture(browser: Browser) -> None:
    known = json.loads(MANIFEST.read_text())
    assert set(known) == set(PICTURES)
    old = []
    for name, picture in pictures(browser):
        committed = (FOLDER / f"{name}.png").read_bytes()
        assert hashlib.sha256(committed).hexdigest() == known[name]["png"], f"{name} was replaced"
        if picture.structure != known[name]["structure"]:
            old.append(f"{name}: the view is another")
        elif (apart := alike(picture.png, committed)) > APART:
            old.append(f"{name}: it looks otherwise, by {apart:.3f}")
    assert old == [], "make them anew: make page-pictures"


def test_another_view_is_not_alike() -> None:
    views = [(FOLDER / f"{name}.png").read_bytes() for name in ("page-pod", "page-time")]
    assert alike(*views) > APART
    assert alike(views[0], views[0]) == 0
