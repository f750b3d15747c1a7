"""`podwright config`: contexts, which are servers by name with the user's credentials for each."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from podwright.cli.shared._arguments import complain
from podwright.cli.shared._noun_grammar import LocalListOptions
from podwright.cli.shared._verb_definition import Verb, VerbGroup
from podwright.ground import option_rows as opt

if TYPE_CHECKING:
    from podwright.client import Contexts

_EXAMPLES = """\
examples:
  podwright config set-context lab --api-host head1:8090 --tls-certs ~/lab
  podwright config use-context lab
  podwright config get-contexts
  vipu --context lab list partitions

A context's credentials go to its own address alone. An option, VIPU_CLI_API_HOST,
PODWRIGHT_SOCKET, --config and /etc/vipu/vipu-cli.hcl come before the current context."""

_Options = TypeVar("_Options", bound=opt.OptionTable)


class _ViewOptions(opt.OptionTable):
    raw = opt.flag("with its access keys")
    json = opt.JSON


class _NamedOptions(opt.OptionTable):
    name = opt.argument("the context's name", "NAME")


class _SetOptions(_NamedOptions):
    api_host = opt.optional("HOST, HOST:PORT, or several with commas", "HOST")
    socket = opt.optional("a Unix socket, in place of a host", "PATH")
    api_user_id = opt.optional("your name there", "ID")
    api_access_key = opt.choice(
        "read your key from standard input; a key as an argument would be seen by others",
        ("-",),
        None,
        "-",
    )
    tls_certs = opt.optional("folder with ca.pem, cert.pem and key.pem, for TLS", "DIR")
    munge = opt.optional("yes, no, or the socket of MUNGE's daemon", "WHEN")


def _schema(_: opt.OptionTable) -> int:
    import json

    from podwright.client import contexts_schema

    print(json.dumps(contexts_schema(), indent=2))
    return 0


def _read() -> Contexts:
    from podwright.client import contexts_path, read_contexts

    return read_contexts(contexts_path(os.environ))


def _write(contexts: Contexts, sentence: str) -> int:
    from podwright.client import contexts_path, write_contexts

    write_contexts(contexts_path(os.environ), contexts)
    print(sentence)
    return 0


def _list(arguments: LocalListOptions) -> int:
    from podwright.cli.shared._listing import ListView, rendered
    from podwright.ground.tables import Table

    contexts = _read()
    rows = [
        (name, context.address, context.api_user_id, name == contexts.current_context)
        for name, context in sorted(contexts.contexts.items())
    ]
    keys = ("name", "address", "user", "current")
    values = [dict(zip(keys, row, strict=True)) for row in rows]
    cells = [("*" if row[3] else "", *row[:3]) for row in rows]
    table = Table(("Current", "Name", "Address", "User"), list(cells), "Name")
    print(rendered(arguments, ListView(values, table)))
    if not rows:
        complain("no contexts; this makes one: podwright config set-context NAME --api-host HOST")
    return 0


def _current(_: opt.OptionTable) -> int:
    contexts = _read()
    if not contexts.current_context:
        print("no context is the current one", file=sys.stderr)
        return 1
    print(contexts.current_context)
    return 0


def _view(arguments: _ViewOptions) -> int:
    import msgspec

    from podwright.client import contexts_as_toml

    visible = _read() if arguments.raw else _read().without_keys()
    if arguments.json:
        print(msgspec.json.format(msgspec.json.encode(visible), indent=2).decode())
    else:
        print(contexts_as_toml(visible).rstrip("\n"))
    return 0


def _use(arguments: _NamedOptions) -> int:
    contexts, name = _read().using(arguments.name), arguments.name
    return _write(contexts, f"The current context is {name}: {contexts.named(name).address}.")


def _delete(arguments: _NamedOptions) -> int:
    return _write(_read().without(arguments.name), f"Context {arguments.name} is forgotten.")


def _set(arguments: _SetOptions) -> int:
    contexts = _read()
    given: dict[str, str] = {
        key: value
        for key in ("api_host", "socket", "api_user_id", "tls_certs", "munge")
        if (value := getattr(arguments, key)) is not None
    }
    if arguments.api_access_key:
        given["api_access_key"] = sys.stdin.readline().strip()
    if given.get("tls_certs"):
        given["tls_certs"] = os.path.abspath(os.path.expanduser(given["tls_certs"]))
    return _write(contexts.setting(arguments.name, given), f"Context {arguments.name} is set.")


def _verb(
    name: str, options: type[_Options], run: Callable[[_Options], int], summary: str
) -> Verb[_Options]:
    return Verb(name, options, run, summary, summary)


VERBS = (
    VerbGroup(
        "podwright config",
        "servers by name: choose one, list them, change them",
        "Servers by name, each with who you are there.",
        _EXAMPLES,
        (
            _verb(
                "get-contexts",
                LocalListOptions,
                _list,
                "List the contexts; * marks the current one.",
            ),
            _verb(
                "current-context",
                opt.OptionTable,
                _current,
                "Print the name of the current context.",
            ),
            _verb("use-context", _NamedOptions, _use, "Make a context the current one."),
            _verb("set-context", _SetOptions, _set, "Make a context, or change what it says."),
            _verb("delete-context", _NamedOptions, _delete, "Forget a context."),
            _verb("view", _ViewOptions, _view, "Print the file, without its access keys."),
            _verb("schema", opt.OptionTable, _schema, "Print the JSON Schema of the file."),
        ),
    ),
)
