"""Lint's knowledge of a site is read once, kept for a while, and never a condition."""

from __future__ import annotations

from pathlib import Path

import pytest

from podwright.cli.podwright import main
from podwright.gpu.lint import PartitionLimits, find_site, lint, read_script, read_site

HELP = """Usage: sbatch [OPTIONS(0)...] executable [args(0)...]

Parallel run options:
  -a, --array=indexes         job array index values
      --gres=list             required generic resources

Options provided by plugins:
      --container-image=[USER@][REGISTRY#]IMAGE[:TAG]|PATH
                              [pyxis] the image to use for the container
"""
CONFIG = "SLURM_VERSION           = 24.11.5\nTopologyPlugin = topology/tree\nGresTypes = gpu,mps\n"
ROWS = (
    "PartitionName=short MaxNodes=2 MaxTime=01:00:00 Default=YES QoS=N/A\n"
    "PartitionName=free MaxNodes=4 MaxTime=2-00:00:00 Default=NO QoS=special\n"
)
JOB = "#!/bin/bash\n#SBATCH --container-image=a.sqsh\n#SBATCH --containre-image=b\nsrun ./a\n"


def test_a_site_is_read_from_what_its_commands_print() -> None:
    site = read_site(CONFIG, ROWS, HELP)
    assert (site.version, site.topology, site.gpus) == ((24, 11), "tree", True)
    assert site.partitions == {
        "short": PartitionLimits(60, 2),
        "free": PartitionLimits(float("inf"), None),  # its QOS may lift the limits
    }
    assert site.default_partition == "short"
    assert {"array", "gres", "container-image"} <= site.options


def test_options_of_plugins_are_mistakes_only_where_the_site_lacks_them() -> None:
    script = read_script(JOB)
    assert lint(script) == []
    assert [one.line for one in lint(script, better=True)] == [2, 3]
    assert [one.line for one in lint(script, read_site("", "", HELP))] == [3]


def test_answers_are_kept_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sbatch = tmp_path / "sbatch"
    sbatch.write_text("#!/bin/sh\n")
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    cache = str(tmp_path / "kept" / "site.json")
    asked: list[str] = []

    def ask(words: list[str]) -> str:
        asked.append(words[-1])
        return {"config": CONFIG, "partition": ROWS, "--help": HELP}[words[-1]]

    def silent(words: list[str]) -> str:
        asked.append(words[-1])
        return ""

    first = find_site(ask, cache, now=1000.0)
    assert find_site(ask, cache, now=4000.0) == first
    assert len(asked) == 3
    find_site(ask, cache, now=4600.0)
    assert len(asked) == 6
    Path(cache).write_text("{broken")
    assert find_site(silent, cache, now=5000.0).version is None
    assert find_site(silent, cache, now=5059.0).version is None
    assert len(asked) == 9  # a Slurm that does not answer is not asked at every turn
    assert find_site(ask, cache, now=5061.0) == first
    monkeypatch.setenv("PATH", "/nonexistent")
    assert find_site(ask, cache, now=5062.0).options == frozenset()


def test_scripts_of_another_site_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder of scripts that name partitions of another site; one script alone gets a finding."""
    site = read_site(CONFIG, ROWS, HELP)
    monkeypatch.setattr("podwright.gpu.lint.chosen_site", lambda *options: site)
    names = ["gpu", "gpu", "gpu", "a100", "short"]
    paths = []
    for number, name in enumerate(names):
        path = tmp_path / f"{number}.sh"
        path.write_text(f"#!/bin/bash\n#SBATCH --partition={name}\nsrun ./a\n")
        paths.append(str(path))
    assert main(["slurm", "lint", *paths]) == 1
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == f"{paths[4]}: no mistakes found"
    assert len(printed) == 2
    assert printed[1].startswith("4 of 5 scripts name a partition that this site's Slurm does not")
    assert "#SBATCH --partition=gpu (3), #SBATCH --partition=a100 (1)" in printed[1]
    assert main(["slurm", "lint", paths[0]]) == 1
    assert "unknown-partition: there is no partition gpu" in capsys.readouterr().out
    assert main(["slurm", "lint", "--ignore", "unknown-partition", *paths]) == 0
