"""No twin starts in these tests, whatever is installed on the machine."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def no_slurm_on_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts answer, unless a test says otherwise."""
    for name in (
        "podwright.gpu.requests._ask_twin",
        "podwright.gpu.requests._collect_site_texts",
        "podwright.slurm.twin",
    ):
        monkeypatch.setattr(f"{name}.find_slurm", lambda version=None: None)
