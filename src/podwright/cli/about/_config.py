"""`podwright config`: contexts, which are servers by name with the user's credentials for each."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from podwright.cli.shared._arguments import Parser
    from podwright.client import Context, Contexts

_EXAMPLES = """\
examples:
  podwright config set-context lab --api-host head1:8090 --tls-certs ~/.podwright/lab
  podwright config use-context lab
  podwright config get-contexts
  vipu --context lab list partitions

A context's credentials go to its own address alone. An option, VIPU_CLI_API_HOST,
PODWRIGHT_SOCKET, --config and /etc/vipu/vipu-cli.hcl come before the current context."""
_HIDDEN = "(hidden)"


def add_parser(verbs: Any, words: Sequence[str] = ()) -> None:
    """Add the verb and its own verbs."""
    config = verbs.add_parser(
        "config",
        help="servers by name: choose one, list them, change them",
        description="Servers by name, each with who you are there.",
        epilog=_EXAMPLES,
    )
    own = config.add_subparsers(metavar="VERB", dest="config_verb", required=True)

    def verb(name: str, summary: str, *, named: bool = False) -> Parser:
        parser: Parser = own.add_parser(name, help=summary, description=summary)
        if named:
            parser.add_argument("name", metavar="NAME", help="the context's name")
        return parser

    contexts = verb("get-contexts", "List the contexts; * marks the current one.")
    contexts.add_argument("--json", action="store_true", help="print JSON")
    verb("current-context", "Print the name of the current context.")
    verb("use-context", "Make a context the current one.", named=True)
    _setting(verb("set-context", "Make a context, or change what it says.", named=True))
    verb("delete-context", "Forget a context.", named=True)
    view = verb("view", "Print the file, without its access keys.")
    view.add_argument("--raw", action="store_true", help="with its access keys")
    view.add_argument("--json", action="store_true", help="print JSON")
    verb("schema", "Print the JSON Schema of the file.")


def _setting(parser: Parser) -> None:
    add = parser.add_argument
    add("--api-host", metavar="HOST", help="HOST, HOST:PORT, or several with commas")
    add("--socket", metavar="PATH", help="a Unix socket, in place of a host")
    add("--api-user-id", metavar="ID", help="your name there")
    add(
        "--api-access-key",
        metavar="-",
        choices=("-",),
        help="read your key from standard input; a key as an argument would be seen by others",
    )
    add("--tls-certs", metavar="DIR", help="folder with ca.pem, cert.pem and key.pem, for TLS")
    add("--munge", metavar="WHEN", help="yes, no, or the socket of MUNGE's daemon")


def main(arguments: argparse.Namespace) -> int:
    """Carry out the parsed verb. Returns the exit code; raises InvalidRequest and NotFound."""
    from podwright.client import contexts_path, read_contexts, write_contexts

    if arguments.config_verb == "schema":
        import json

        from podwright.client import contexts_schema

        print(json.dumps(contexts_schema(), indent=2))
        return 0
    path = contexts_path(os.environ)
    contexts = read_contexts(path)
    if arguments.config_verb == "get-contexts":
        print(_listed(contexts, as_json=arguments.json))
        return 0
    if arguments.config_verb == "current-context":
        return _current(contexts)
    if arguments.config_verb == "view":
        print(_viewed(contexts, raw=arguments.raw, as_json=arguments.json))
        return 0
    changed, sentence = _changed(arguments, contexts)
    write_contexts(path, changed)
    print(sentence)
    return 0


def _listed(contexts: Contexts, *, as_json: bool) -> str:
    import json

    from podwright.cli.shared._tables import table

    rows: list[tuple[str, str, str, bool]] = [
        (name, context.address, context.api_user_id, name == contexts.current_context)
        for name, context in sorted(contexts.contexts.items())
    ]
    if as_json:
        keys = ("name", "address", "user", "current")
        return json.dumps([dict(zip(keys, row, strict=True)) for row in rows], indent=2)
    if not rows:
        return "There are no contexts. podwright config set-context NAME --api-host HOST makes one."
    return table(
        ("Current", "Name", "Address", "User"),
        [("*" if current else "", name, address, user) for name, address, user, current in rows],
    )


def _current(contexts: Contexts) -> int:
    if not contexts.current_context:
        print("no context is the current one", file=sys.stderr)
        return 1
    print(contexts.current_context)
    return 0


def _viewed(contexts: Contexts, *, raw: bool, as_json: bool) -> str:
    import msgspec

    from podwright.client import contexts_as_toml

    visible = contexts if raw else _without_keys(contexts)
    if as_json:
        return msgspec.json.format(msgspec.json.encode(visible), indent=2).decode()
    return contexts_as_toml(visible).rstrip("\n")


def _without_keys(stored: Contexts) -> Contexts:
    import msgspec

    def hidden(context: Context) -> Context:
        return (
            msgspec.structs.replace(context, api_access_key=_HIDDEN)
            if context.api_access_key
            else context
        )

    contexts = {name: hidden(context) for name, context in stored.contexts.items()}
    return msgspec.structs.replace(stored, contexts=contexts)


def _changed(arguments: argparse.Namespace, found: Contexts) -> tuple[Contexts, str]:
    """Return the contexts after the change, and the sentence that states the change."""
    import msgspec

    name: str = arguments.name
    contexts = dict(found.contexts)
    if arguments.config_verb == "use-context":
        where = found.named(name).address
        changed = msgspec.structs.replace(found, current_context=name)
        return changed, f"The current context is {name}: {where}."
    if arguments.config_verb == "delete-context":
        found.named(name)
        del contexts[name]
        current = "" if found.current_context == name else found.current_context
        changed = msgspec.structs.replace(found, contexts=contexts, current_context=current)
        return changed, f"Context {name} is forgotten."
    contexts[name] = _set(arguments, contexts.get(name))
    return msgspec.structs.replace(found, contexts=contexts), f"Context {name} is set."


def _set(arguments: argparse.Namespace, before: Context | None) -> Context:
    import msgspec

    from podwright.client import Context

    given: dict[str, str] = {
        key: value
        for key in ("api_host", "socket", "api_user_id", "tls_certs", "munge")
        if (value := getattr(arguments, key)) is not None
    }
    if arguments.api_access_key:
        given["api_access_key"] = sys.stdin.readline().strip()
    if given.get("tls_certs"):
        given["tls_certs"] = os.path.abspath(os.path.expanduser(given["tls_certs"]))
    for option, other in (("api_host", "socket"), ("socket", "api_host")):
        if given.get(option):
            given.setdefault(other, "")
    return msgspec.structs.replace(before or Context(), **given)
