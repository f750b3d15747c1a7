"""What lint prints, read by others: SARIF by a library's models."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from podwright.gpu.lint import rules

pytestmark = pytest.mark.outer

WRONG = "#!/bin/bash\n#SBATCH --nodes=2\nhostname\n#SBATCH --mem=4G\ndate\n"
RIGHT = "#!/bin/bash\n#SBATCH --nodes=2\nsrun hostname\n"
_READ = """
import json, sys
from sarif_pydantic import Sarif
log = Sarif.model_validate_json(sys.stdin.read())
(run,) = log.runs
print(json.dumps([log.version, [rule.id for rule in run.tool.driver.rules], [
    [r.rule_id, r.rule_index, r.level.value, r.message.text,
     r.locations[0].physical_location.artifact_location.uri,
     r.locations[0].physical_location.region.start_line] for r in run.results]]))
"""


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the reader."""
    folder = tmp_path_factory.mktemp("tools")
    venv.create(folder, with_pip=True)
    pip = [str(folder / "bin/python"), "-m", "pip", "install", "-q"]
    subprocess.run([*pip, "sarif-pydantic"], check=True)
    return folder / "bin"


def lint(*words: str) -> str:
    argv = [sys.executable, "-m", "podwright.cli.podwright", "slurm", "lint", *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout


def test_sarif_is_read_by_a_library(tools: Path, tmp_path: Path) -> None:
    (tmp_path / "wrong.sh").write_text(WRONG)
    (tmp_path / "right.sh").write_text(RIGHT)
    text = lint("--format=sarif", str(tmp_path / "wrong.sh"), str(tmp_path / "right.sh"))
    done = subprocess.run(
        [tools / "python", "-c", _READ],
        input=text,
        capture_output=True,
        text=True,
        check=True,
    )
    version, ids, results = json.loads(done.stdout)
    assert version == "2.1.0"
    assert ids == [*rules()]
    ((rule, index, level, message, uri, line),) = results
    assert (rule, level, line) == ("late-directive", "error", 4)
    assert ids[index] == rule
    assert message
    assert uri == (tmp_path / "wrong.sh").as_uri()
