"""What the controller's door shows: a method for each call of the wire."""

from __future__ import annotations

import inspect

import pytest

from podwright import controller
from podwright.controller import Controller
from podwright.wire import METHODS


def test_the_door() -> None:
    assert controller.__all__ == [
        "Caller",
        "Controller",
        "Discovery",
        "Here",
        "Machines",
        "Role",
        "Visible",
        "first_user",
        "private_kinds",
    ]


@pytest.mark.parametrize("name", sorted(set(METHODS) - {"GetServerInfo", "IssueToken"}))
def test_every_call_of_the_wire_has_its_method(name: str) -> None:
    method = getattr(Controller, METHODS[name].function)
    assert inspect.iscoroutinefunction(method)
    signature = inspect.signature(method, eval_str=True)
    assert list(signature.parameters) == ["self", "caller", "request"]
    assert signature.parameters["request"].annotation is METHODS[name].request
    assert signature.return_annotation is METHODS[name].reply
