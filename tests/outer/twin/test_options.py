"""Slurm's own list of options, on each release, is the table that requests are read with."""

from __future__ import annotations

import re

import pytest

from podwright.slurm.site.submit_options import COMMANDS, known
from podwright.slurm.twin import SiteFiles, Twin
from tests.outer.lab import release
from tests.outer.twin.test_ask import installed

pytestmark = pytest.mark.twin

CONF = "ClusterName=c\nNodeName=n1 CPUs=2\nPartitionName=main Nodes=ALL Default=YES\n"


@pytest.mark.parametrize("name", ["oldest", "middle", "newest"])
def test_every_option_that_slurm_prints_is_in_the_table(name: str) -> None:
    lab = release(name)
    with Twin(SiteFiles(slurm_conf=CONF), installed(lab)) as twin:
        for command in COMMANDS:
            printed = twin._run_as([command, "--help"]).text
            options = set(re.findall(r"(?:^|[\s,\[])--([a-z][a-z0-9_-]+)", printed))
            assert len(options) > 60, printed[:300]
            table = {
                option.name
                for option in known(command).values()
                if option.since <= lab.version < option.until
            }
            # Slurm 24.11 and later print these two and refuse them.
            assert options - table - {"power", "get-user-env"} == set(), command
