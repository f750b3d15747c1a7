"""`vipu-server --private-data`: its messages, and the default of a secure server."""

from __future__ import annotations

import pytest

from podwright.cli import vipu_server
from podwright.controller import private_kinds
from podwright.server.command._serving_from_options import serving_options


@pytest.mark.parametrize(
    ("words", "secure", "private"),
    [
        ([], True, "all"),
        ([], False, "none"),
        (["--private-data", "none"], True, "none"),
        (["--private-data", "all"], False, "all"),
        (["--private-data", "leases,waiters"], True, "leases,waiters"),
    ],
)
def test_options_decide_which_data_is_private(
    words: list[str], secure: bool, private: str, nobody_at_home: object
) -> None:
    options = serving_options(vipu_server.parse([*words, *["--secure"] * secure]))
    assert options.visible is not None
    assert options.visible.settled(secure=options.secure).private == private_kinds(private)
