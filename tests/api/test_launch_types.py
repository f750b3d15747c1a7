"""What type checkers say of `podwright.launch`: it compares arguments with the function's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PROGRAM = """\
import podwright

def train(x: str, y: int = 1) -> float:
    return 0.5

a = podwright.launch(train, "a")
podwright.launch(train, "a", 2, instances=2, max_restarts=1)
podwright.launch(train, kwargs={"x": "a"})
podwright.launch(lambda x, y: x, 1, 2)
results: list[float] = a.results()
podwright.launch(train, 5)  # wrong: 11
podwright.launch(train)  # wrong: 12
podwright.launch(train, "a", 2, 3)  # wrong: 13
wrong: list[str] = podwright.launch(train, "a").results()  # wrong: 14
"""


def test_arguments_are_compared_with_the_functions_parameters(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    line = [sys.executable, "-m", "mypy", "--no-incremental", "--follow-imports=silent"]
    found = subprocess.run(
        [*line, str(program)], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    wrong = {int(text.split(":")[1]) for text in found.stdout.splitlines() if ": error: " in text}
    assert wrong == {11, 12, 13, 14}, found.stdout + found.stderr
