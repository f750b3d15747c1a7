"""The controller's door and its table, which has a function for each call of the wire."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

import pytest
from msgspec import structs

from podwright import controller
from podwright.controller.calls._call_checks import subject_of
from podwright.controller.calls._call_table import CALLS, SERVER_ANSWERED_METHODS, call_table
from podwright.wire import (
    METHODS,
    AcquireRequest,
    AuditEntry,
    Empty,
    ListRequest,
    Method,
    PartitionSpec,
    QuotaInfo,
    RemoveRequest,
)

NOTHING = AuditEntry.NOTHING


def test_the_door() -> None:
    public = [
        name
        for name, value in vars(controller).items()
        if not name.startswith("_") and not isinstance(value, ModuleType) and name != "annotations"
    ]
    assert sorted(public) == [
        "Caller",
        "Controller",
        "Discovery",
        "Gravity",
        "Machines",
        "OwnHost",
        "PartitionFacts",
        "PodObserver",
        "Role",
        "ServedClusters",
        "StoreFault",
        "Visible",
        "damaged",
        "find_faults",
        "first_user",
        "orphans",
        "private_kinds",
        "weights_of",
        "with_new_chains",
    ]


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_call_of_the_wire_has_its_function(name: str) -> None:
    if name in SERVER_ANSWERED_METHODS:
        assert name not in CALLS
        return
    function = CALLS[name]
    assert inspect.iscoroutinefunction(function)
    signature = inspect.signature(function, eval_str=True)
    assert list(signature.parameters) == ["services", "caller", "request"]
    assert signature.parameters["request"].annotation is METHODS[name].request
    assert signature.return_annotation is METHODS[name].reply


def _module(*functions: str) -> ModuleType:
    module = ModuleType("somewhere._some_calls")
    exec("".join(f"async def {name}(s, c, r): ...\n" for name in functions), vars(module))
    return module


def test_a_method_without_a_function_or_with_two_is_refused() -> None:
    ping = {"Ping": Method("Ping", Empty, Empty)}
    once, same = _module("ping", "pong"), _module("ping")
    assert call_table(ping, [once])["Ping"] is vars(once)["ping"]
    with pytest.raises(LookupError, match="call Ping: 0 functions ping in _some_calls"):
        call_table(ping, [_module("pong")])
    with pytest.raises(LookupError, match="call Ping: 2 functions ping"):
        call_table(ping, [once, same])


def test_what_a_module_imports_is_not_its_own() -> None:
    module, other = _module("ping"), _module()
    other.__name__ = "somewhere._other_calls"
    vars(other)["ping"] = vars(module)["ping"]
    table = call_table({"Ping": Method("Ping", Empty, Empty)}, [module, other])
    assert table["Ping"] is vars(module)["ping"]


@pytest.mark.parametrize("name", sorted(METHODS))
def test_what_a_call_is_about_is_a_field_of_its_request(name: str) -> None:
    method = METHODS[name]
    for path in method.about.fields if method.about is not None else ():
        kind: Any = method.request
        for step in path.split("."):
            fields = {field.name: field.type for field in structs.fields(kind)}
            kind = fields[step]
        assert kind is str


def test_what_stands_in_the_audit() -> None:
    """Every call that changes something is entered, except those that only keep something alive."""
    silent = {name for name, m in METHODS.items() if m.changes and m.entry is AuditEntry.NOTHING}
    assert silent == {"AskToMove", "CallOffMove", "Enqueue", "Renew", "ReportJobs", "Wait"}
    assert {n for n, m in METHODS.items() if m.entry is AuditEntry.LEASE} == {"Acquire"}
    assert not [n for n, m in METHODS.items() if not m.changes and m.entry is not NOTHING]


def test_a_request_names_its_object() -> None:
    assert subject_of(METHODS["RemovePartition"], RemoveRequest(name="p" * 100)) == "p" * 80
    acquire = AcquireRequest(spec=PartitionSpec(name="p1"))
    assert subject_of(METHODS["Acquire"], acquire) == "p1"
    assert subject_of(METHODS["SetQuota"], QuotaInfo(allocation="a1")) == "a1"
    assert subject_of(METHODS["SetQuota"], QuotaInfo(user="bob", allocation="a1")) == "bob"
    assert subject_of(METHODS["ListPartitions"], ListRequest(allocation="a1")) == ""
