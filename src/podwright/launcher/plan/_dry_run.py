"""`--dry-run=server`: checks whether a launch would get its partition now. Nothing is changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from podwright.errors import InvalidRequest, Unavailable, as_sentence

if TYPE_CHECKING:
    from podwright.launcher.plan._plan import Plan


def would_run(plan: Plan, environ: Mapping[str, str]) -> tuple[bool, list[str]]:
    """Return whether the launch would get its partition, and why or why not, in lines.

    Raises Unavailable when there is no server, InvalidRequest for what can never be granted.
    """
    from podwright.client import LocalServers, find_server
    from podwright.launcher.watchers._lease import VENDOR_PROTOCOLS
    from podwright.wire import ExplainRequest, Explanation

    if plan.offline:
        raise InvalidRequest(
            "--dry-run=server asks a server, and --offline-mode asks none",
            would_work="Leave one of them out",
        )
    server = find_server(
        plan.server_options,
        environ,
        timeout=plan.server_timeout,
        local_servers=LocalServers.running(
            Unavailable(
                "there is no server to ask",
                would_work="A launch would start one for you, with a simulated pod; or name yours "
                "with --vipu-server-host",
            )
        ),
    )
    request = plan.wanted.request()
    try:
        if server.info.apis != VENDOR_PROTOCOLS:
            explanation = server.client.ask("Explain", ExplainRequest(acquire=request), Explanation)
            starts_now, explanation_lines = explanation.starts_now, explanation.lines
            if not starts_now:
                sentences = [explanation.problem, *explanation_lines, explanation.would_work]
                explanation_lines = [as_sentence(sentence) for sentence in sentences if sentence]
        else:
            from podwright.launcher.plan._vendor_partition import would_borrow_partition

            starts_now, explanation_lines = would_borrow_partition(
                server.client, plan.wanted.request()
            )
    finally:
        server.client.close()
    return starts_now, [f"server {server.address} ({server.how})", *explanation_lines]
