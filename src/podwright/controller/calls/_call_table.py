"""The table of calls: by the name of each method of `wire.METHODS`, the function that carries it
out.

A function `(services, caller, request)` belongs to the method whose `function` is its name. The
server itself answers what only it knows; a method that nobody carries out, or two functions do, is
a mistake that ends the import.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType, ModuleType
from typing import Final

from podwright.controller.calls import (
    _administration_calls,
    _agent_calls,
    _cluster_calls,
    _explain_calls,
    _lease_calls,
    _partition_calls,
    _reading_calls,
    _scheduler_moves,
    _scheduler_queues,
    _share_calls,
    _user_calls,
    _waiting_calls,
)
from podwright.controller.calls._call_checks import CallFunction
from podwright.wire import METHODS, Method

#: The server answers them: who it is, and the token of a caller on its Unix socket.
SERVER_ANSWERED_METHODS: Final = frozenset({"GetServerInfo", "IssueToken"})


def call_table(
    methods: Mapping[str, Method], modules: Iterable[ModuleType]
) -> dict[str, CallFunction]:
    """The function of each method, by its name. Raises LookupError unless it has exactly one."""
    searched_modules = list(modules)
    functions_by_method = {}
    for method_name, method in methods.items():
        functions: list[CallFunction] = []
        for module in searched_modules:
            function: CallFunction | None = vars(module).get(method.function)
            if function is not None and function.__module__ == module.__name__:
                functions.append(function)  # what it imports is another module's
        if len(functions) != 1:
            module_names = ", ".join(
                module.__name__.rpartition(".")[2] for module in searched_modules
            )
            raise LookupError(
                f"call {method_name}: {len(functions)} functions {method.function} in "
                f"{module_names}, and not one"
            )
        functions_by_method[method_name] = functions[0]
    return functions_by_method


CALLS: Final[Mapping[str, CallFunction]] = MappingProxyType(
    call_table(
        {name: method for name, method in METHODS.items() if name not in SERVER_ANSWERED_METHODS},
        (
            _partition_calls,
            _lease_calls,
            _reading_calls,
            _waiting_calls,
            _scheduler_queues,
            _scheduler_moves,
            _share_calls,
            _administration_calls,
            _explain_calls,
            _agent_calls,
            _cluster_calls,
            _user_calls,
        ),
    )
)
