"""A refusal that poprun prints names poprun's own options and variables."""

from __future__ import annotations

import subprocess
import sys

from podwright.cli.poprun import in_own_words
from podwright.client._named_server import unreachable_error
from podwright.launcher import OPTIONS


def test_a_server_that_does_not_answer_is_named_by_poprun_s_options() -> None:
    text = in_own_words(unreachable_error("127.0.0.1:1", "refused").message)
    assert "api-host" not in text
    assert "VIPU_CLI" not in text
    assert "--vipu-server-host HOST and --vipu-server-port PORT, or IPUOF_VIPU_API_HOST" in text
    known = {option.name for option in OPTIONS}
    assert {"--vipu-server-host", "--vipu-server-port"} <= known


def test_what_the_command_prints() -> None:
    line = ["--num-replicas=2", "--num-instances=2", "--vipu-server-host=127.0.0.1"]
    line += ["--vipu-server-port=1", "--vipu-server-timeout=1", "true"]
    # A process of its own, because poprun forks, and this one may have threads.
    ran = subprocess.run(
        [sys.executable, "-m", "podwright.cli.poprun", *line],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ran.returncode == 69
    assert "--vipu-server-host" in ran.stderr
    assert "--api-host" not in ran.stderr
