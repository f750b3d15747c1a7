"""Applies the corrections that are sure, and shows what would change."""

from __future__ import annotations

from podwright.gpu.lint._apply_rules import lint
from podwright.gpu.lint._corrections import fixed
from podwright.gpu.lint._script import read_script
from podwright.gpu.lint._site_cache import CachedSite

_MAX_FIX_ROUNDS = 20


def fix(
    script_text: str, site: CachedSite | None = None, *, better: bool = False, script_name: str = ""
) -> str:
    """The script with all sure corrections, including those that appear only after others were
    made."""
    for _ in range(_MAX_FIX_ROUNDS):
        fixed_text = fixed(
            script_text, lint(read_script(script_text, script_name), site, better=better)
        )
        if fixed_text == script_text:
            break
        script_text = fixed_text
    return script_text


def difference(old_text: str, new_text: str, file_name: str) -> str:
    """A unified diff, empty where nothing changes."""
    import difflib

    return "".join(
        difflib.unified_diff(
            old_text.splitlines(keepends=True),
            new_text.splitlines(keepends=True),
            file_name,
            f"{file_name} (corrected)",
        )
    )
