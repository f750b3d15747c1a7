"""Lines of slurm.conf are read as Slurm reads them, wherever they are read."""

from __future__ import annotations

from pathlib import Path

from podwright.slurm.site.conf_lines import read_row, settings, value
from podwright.slurm.site.files import included_files, lines, site_settings
from podwright.slurm.twin import SiteFiles
from podwright.slurm.twin._site_conf import read_site_conf

CONF = """\
# SlurmctldPort=1
ClusterName = pod  # one of two
SchedulerParameters=bf_window=60,\\ # a comment before the break
bf_interval=30
SlurmctldParameters=a\\#b
NodeName=DEFAULT  CPUs = 4
NodeName = n[1-2] \\
    Gres="gpu:a100:2,shard:4"
PartitionName=p Nodes=n[1-2] Default=YES
"""


def test_settings_have_no_comment_and_continue_over_lines() -> None:
    read = settings(CONF)
    assert read["clustername"] == "pod"
    assert read["schedulerparameters"].split() == ["bf_window=60,", "bf_interval=30"]
    assert read["slurmctldparameters"] == "a\\#b"
    assert "slurmctldport" not in read


def test_a_row_may_have_blanks_around_its_signs_and_values_in_quotes() -> None:
    row = read_row('NodeName = n1 Gres="gpu:2 x" CPUs=4')
    assert row == {"NodeName": "n1", "Gres": '"gpu:2 x"', "CPUs": "4"}
    assert value(row, "cpus") == "4"
    assert value(row, "port") == ""


def test_a_twin_reads_the_nodes_of_lines_with_blanks_and_breaks() -> None:
    site = read_site_conf(SiteFiles(slurm_conf=CONF))
    assert site.nodes == {
        name: {"CPUs": "4", "Gres": "gpu:a100:2,shard:4"} for name in ("n1", "n2")
    }
    assert site.partitions == {"p": {"Nodes": "n[1-2]", "Default": "YES"}}


def test_included_files_count_wherever_their_line_ends(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=a\nInclude more.conf # ours\nAuthType=auth/munge\n")
    (tmp_path / "more.conf").write_text("ClusterName=b\ninclude \\\n  deep.conf\n")
    (tmp_path / "deep.conf").write_text("AuthType=auth/slurm\n")
    assert list(lines(conf)) == [
        "ClusterName=a",
        "ClusterName=b",
        "AuthType=auth/slurm",
        "AuthType=auth/munge",
    ]
    assert site_settings(conf) == {"clustername": "b", "authtype": "auth/munge"}
    assert list(included_files(conf)) == [tmp_path / "more.conf", tmp_path / "deep.conf"]
