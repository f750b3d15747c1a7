"""`podwright proxy`: runs a program of V-IPU's so that a secure server knows its user."""

from __future__ import annotations

import os

from podwright.cli.shared._arguments import complain
from podwright.cli.shared._verb_definition import Verb
from podwright.ground import option_rows as opt
from podwright.ground.option_rows import port

_EXAMPLES = """\
examples:
  podwright proxy -H head1 --tls-certs alice.certs -- ./vipu list partitions
  podwright proxy -H head1 --tls-certs alice.certs -- python train.py

The command finds the server by VIPU_CLI_API_HOST and IPUOF_VIPU_API_HOST, which name a port that
leads there, for programs of this user alone, for as long as the command runs."""


class _ProxyOptions(opt.OptionTable, inherited=True):
    api_host = opt.text(
        "the server, or HOST:PORT, or several with commas (VIPU_CLI_API_HOST)",
        "HOST",
        name="-H --api-host",
    )
    api_port = opt.value("its port, 8090", "PORT", port, None)
    tls_certs = opt.text(
        "your certificate: a folder that vipu-admin create certificate made (VIPU_CLI_TLS_CERTS)",
        "DIR",
    )
    config = opt.text("where these may stand as well", "FILE")
    command = opt.arguments("what to run", "COMMAND", "...")


def _run(arguments: _ProxyOptions) -> int:
    """Run the verb. Returns the command's exit code, or 128+N after signal N."""
    import asyncio

    from podwright.client import PortForwarder, ServerOptions, run_through, server_for_proxy
    from podwright.errors import InvalidRequest

    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        raise InvalidRequest(
            "there is no command to run",
            would_work="podwright proxy -H HOST --tls-certs DIR -- COMMAND",
        )
    named = ServerOptions(
        host=arguments.api_host,
        port=str(arguments.api_port or ""),
        config=arguments.config,
        certs=arguments.tls_certs,
    )
    addresses, certs = server_for_proxy(named, os.environ)
    forwarder = PortForwarder(addresses, certs, lambda why: complain(f"podwright proxy: {why}"))
    return asyncio.run(run_through(forwarder, command, os.environ))


VERBS = (
    Verb(
        "proxy",
        _ProxyOptions,
        _run,
        help="run a program of V-IPU's under your name on a secure server",
        description="Run a command whose calls reach a secure server in your name.",
        epilog=_EXAMPLES,
    ),
)
