"""The reference page of all calls: who may make which, and whether it may be made twice."""

from __future__ import annotations

from podwright.wire import METHODS, AuditEntry, May, Rights, virm

_WORDS = {May.ANY: "yes", May.OWN: "own", May.JOBS: "its jobs'", May.NO: "-"}
#: Who may make each call: those of podwright.v1 by name, the vendor's as `virmgrpc.NAME`.
RIGHTS: dict[str, Rights] = {name: method.may for name, method in METHODS.items()} | {
    f"virmgrpc.{name}": method.may for name, method in virm.VIRM_METHODS.items()
}


def calls_page() -> str:
    """Two tables in Markdown: roles, then values and repeats."""
    lines = [
        f"| call | {' | '.join(Rights._fields)} |",
        "|---" * (len(Rights._fields) + 1) + "|",
    ]
    for call, rights in RIGHTS.items():
        lines.append(f"| `{call}` | {' | '.join(_WORDS[may] for may in rights)} |")
    lines += [
        "",
        "## Values",
        "",
        "A client whose answer got lost makes a call again where the last column allows it.",
        "",
        "| call | request | reply | may be made again |",
        "|---|---|---|---|",
    ]
    for name, method in METHODS.items():
        values = f"`{method.request.__name__}` | `{method.reply.__name__}`"
        lines.append(f"| `{name}` | {values} | {method.repeat.value} |")
    lines += [
        "",
        "## Audit",
        "",
        "What stands in the events about a call, however it ended.",
        "",
        "| call | about | in the audit |",
        "|---|---|---|",
    ]
    for name, method in METHODS.items():
        if method.entry is not AuditEntry.NOTHING:
            about = method.about.kind.value if method.about is not None else "-"
            lines.append(f"| `{name}` | {about} | {method.entry.value} |")
    return "\n".join(lines) + "\n"


def reveals_table() -> str:
    """What each call reveals of other tenants, as docs/security.md has it."""
    rows = [f"| `{name}` | {m.reveals} |" for name, m in METHODS.items() if m.reveals]
    return "\n".join(["| call | it reveals of others |", "|---|---|", *rows]) + "\n"
