"""Contexts: named servers, each with the user's credentials there, in a file of the user's own.

The file is TOML, `config.toml` in `$XDG_CONFIG_HOME/podwright` or `~/.config/podwright`:

    current-context = "lab"

    [contexts.lab]
    api-host = "head1:8090"
    api-user-id = "alice"
    api-access-key = "..."
    tls-certs = "/home/alice/.podwright/lab"

A context is atomic: its address and its credentials are used together or not at all, so the key of
one server never reaches another.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import msgspec

from podwright.errors import InvalidRequest, NotFound
from podwright.ground.durable_files import write_whole

_KEY_PLACEHOLDER = "(hidden)"
_OTHERS = 0o077


class Context(
    msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True, omit_defaults=True
):
    """One server. Either `socket`, a Unix socket's path, or `api_host` (HOST, HOST:PORT, or several
    with commas). The rest says who one is there, as `Credentials` have it."""

    api_host: str = ""
    socket: str = ""
    api_user_id: str = ""
    api_access_key: str = ""
    tls_certs: str = ""
    munge: str = ""

    def __repr__(self) -> str:
        return f"Context({self.api_host or self.socket!r})"  # a key must not get into a log

    @property
    def address(self) -> str:
        """The server's address, for people."""
        return self.api_host or self.socket


class Contexts(
    msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True, omit_defaults=True
):
    """The whole file."""

    current_context: str = ""
    contexts: dict[str, Context] = {}

    def named(self, name: str) -> Context:
        """Return the context of this name. Raises NotFound."""
        if name not in self.contexts:
            known_names = ", ".join(sorted(self.contexts))
            raise NotFound(
                f"there is no context {name!r}",
                would_work=f"podwright config get-contexts lists them: {known_names}"
                if known_names
                else "podwright config set-context NAME --api-host HOST makes one",
            )
        return self.contexts[name]

    def using(self, context_name: str) -> Contexts:
        """Return the contexts with this one as the current one. Raises NotFound."""
        self.named(context_name)
        return msgspec.structs.replace(self, current_context=context_name)

    def without(self, context_name: str) -> Contexts:
        """Return the contexts without this one. Raises NotFound."""
        self.named(context_name)
        remaining = {
            other_name: context
            for other_name, context in self.contexts.items()
            if other_name != context_name
        }
        current_name = "" if self.current_context == context_name else self.current_context
        return msgspec.structs.replace(self, contexts=remaining, current_context=current_name)

    def setting(self, context_name: str, changes: Mapping[str, str]) -> Contexts:
        """Return the contexts with these fields of one of them changed; it is made if need be.

        A host takes the place of a socket, and a socket that of a host.
        """
        new_fields = dict(changes)
        for field, opposite_field in (("api_host", "socket"), ("socket", "api_host")):
            if new_fields.get(field):
                new_fields.setdefault(opposite_field, "")
        context = msgspec.structs.replace(self.contexts.get(context_name, Context()), **new_fields)
        return msgspec.structs.replace(self, contexts={**self.contexts, context_name: context})

    def without_keys(self) -> Contexts:
        """Return the contexts with `(hidden)` in place of each access key."""
        contexts = {
            name: msgspec.structs.replace(context, api_access_key=_KEY_PLACEHOLDER)
            if context.api_access_key
            else context
            for name, context in self.contexts.items()
        }
        return msgspec.structs.replace(self, contexts=contexts)


def read_contexts(path: str) -> Contexts:
    """Return the contexts of a file; none if the file does not exist.

    Raises InvalidRequest for a file that cannot be read, that does not hold contexts, or that holds
    an access key and can be read by others.
    """
    try:
        with open(path, "rb") as file:
            file_mode = os.fstat(file.fileno()).st_mode
            content = file.read()
    except FileNotFoundError:
        return Contexts()
    except OSError as error:
        raise InvalidRequest(f"cannot read {path}: {(error.strerror or '').lower()}") from None
    try:
        contexts = msgspec.toml.decode(content, type=Contexts)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
        raise InvalidRequest(
            f"{path}: {error}", would_work="podwright config schema prints what may stand there"
        ) from None
    if file_mode & _OTHERS and any(
        context.api_access_key for context in contexts.contexts.values()
    ):
        raise InvalidRequest(
            f"{path} holds an access key, and others can read it", would_work=f"chmod 600 {path}"
        )
    for name, context in contexts.contexts.items():
        _check_context(name, context)
    if contexts.current_context and contexts.current_context not in contexts.contexts:
        raise InvalidRequest(
            f"{path}: the current context {contexts.current_context!r} is not among the contexts",
            would_work="podwright config use-context NAME",
        )
    return contexts


def _check_context(context_name: str, context: Context) -> None:
    if bool(context.api_host) == bool(context.socket):
        raise InvalidRequest(
            f"context {context_name!r} needs either api-host or socket",
            would_work=f"podwright config set-context {context_name} --api-host HOST",
        )
    if bool(context.api_user_id) != bool(context.api_access_key):
        raise InvalidRequest(
            f"context {context_name!r}: a user id and an access key belong together",
            would_work="set both, or neither",
        )


def write_contexts(path: str, contexts: Contexts) -> None:
    """Replace the file in one step, readable for its owner only. Raises InvalidRequest."""
    for name, context in contexts.contexts.items():
        _check_context(name, context)
    folder = os.path.dirname(path)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        write_whole(path, contexts_as_toml(contexts))
    except OSError as error:
        raise InvalidRequest(f"cannot write {path}: {(error.strerror or '').lower()}") from None


def contexts_as_toml(contexts: Contexts) -> str:
    """Return the file's text. Its values are strings, which TOML writes as JSON does."""
    import json

    document: dict[str, Any] = msgspec.to_builtins(contexts)
    lines = []
    if contexts.current_context:
        lines.append(f"current-context = {json.dumps(contexts.current_context)}")
    for name, context in sorted(document.get("contexts", {}).items()):
        lines += ["", f"[contexts.{json.dumps(name)}]"]
        lines += [f"{field} = {json.dumps(field_value)}" for field, field_value in context.items()]
    return "\n".join(lines).lstrip("\n") + "\n"


def contexts_schema() -> dict[str, Any]:
    """Return the JSON Schema of the file, by which editors check TOML as well."""
    return msgspec.json.schema(Contexts)
