"""Lines that people wrote for PopRun in public repositories: each becomes a plan with its values.

The file has them up to the program's name. To add a line, write it there.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from string import Template

import pytest

from podwright.launcher import make_plan, parse
from podwright.launcher.options._config import config_text

LINES = (Path(__file__).parent / "real_lines.txt").read_text().splitlines()
VARIABLES = {
    "m": "4",
    "REPLICAS": "8",
    "USER": "u",
    "HOSTS": "h[1-2]",
    "TCP_IF_INCLUDE": "eno1",
    "CLUSTER": "c",
    "VIPU_ALLOCATION_ID": "a",
    "PARTITION": "p",
    "VIPU_SERVER": "v",
    "PYTORCH_CACHE_DIR": "/cache",
    "PYTORCH_EXE_DIR": "/cache",
    "VIPU_SERVER_HOST": "v",
    "IPUOF_VIPU_API_HOST": "v",
    "VIPU_CLI_API_HOST": "v",
    "IPUOF_VIPU_API_PARTITION_ID": "p",
}
OUR_HOSTS = {"host_address_1,host_address_2": 2, "pod[1-4]": 4, "h[1-2]": 2}


def said(words: list[str], name: str, default: str) -> str:
    """Return a line's value for an option, found in another way than poprun's own."""
    text = "\n".join(words)
    found = re.findall(rf"^--{name}(?:=|\n)(.*)$", text, re.MULTILINE)
    return found[-1] if found else default


@pytest.mark.parametrize("line", LINES)
def test_a_command_line_from_practice_becomes_its_plan(line: str) -> None:
    words = shlex.split(Template(line).substitute(VARIABLES))[1:]
    options = parse(words)
    plan = make_plan(options, {})
    instances, replicas = int(said(words, "num-instances", "1")), said(words, "num-replicas", "1")
    assert (len(plan.instances), plan.replicas) == (instances, int(replicas))
    each = int(said(words, "ipus-per-replica", "1"))
    assert plan.wanted.request().spec.size == int(replicas) * each
    assert plan.wanted.request().spec.name == said(words, "vipu-partition", "")
    assert plan.server_host == said(words, "vipu-server-host", "")
    assert plan.wanted.request().update == (said(words, "update-partition", "no") == "yes")
    assert plan.wanted.request().keep == (said(words, "remove-partition", "yes") in ("no", "0"))
    assert plan.offline == (said(words, "offline-mode", "no") in ("yes", "on"))
    wanted = said(words, "host", "")
    assert len(plan.hosts) == (min(OUR_HOSTS[wanted], instances) if wanted else 1)
    assert words[-len(plan.program) :] == list(plan.program)
    assert re.fullmatch(r"python3?|\./train_replica\.py", plan.program[0])
    assert "mpirun" not in str(plan.notes)
    assert config_text(options)  # it can be kept in a file as well
