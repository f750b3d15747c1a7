"""A new call touches three files, and is there by every door."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: What a developer writes: in which file, instead of what.
EDITS = (
    (
        "wire/_admin.py",
        "CALLS = (\n",
        '''class Label(Value):
    """Words for people about a machine."""

    name: str
    label: str = ""


CALLS = (
    Method("LabelMachine", Label, Label, repeat=Repeat.SAME, about=About(ObjectKind.MACHINE)),
''',
    ),
    (
        "wire/__init__.py",
        "from ._method import",
        "from ._admin import Label as Label\nfrom ._method import",
    ),
    (
        "controller/calls/_cluster_calls.py",
        "    Named,\n",
        "    Label,\n    Named,\n",
    ),
    (
        "controller/calls/_cluster_calls.py",
        "async def test_cluster(",
        '''async def label_machine(services: Services, caller: Caller, request: Label) -> Label:
    """Label a machine."""
    return Label(name=request.name, label=request.label.upper())


async def test_cluster(''',
    ),
)


def _run(copy: Path, *words: str) -> str:
    environment = {**os.environ, "PYTHONPATH": f"{copy}/src:{copy}"}
    done = subprocess.run(
        [sys.executable, *words], cwd=copy, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_new_call_touches_three_files(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    for part in ("src", "tools", "tests/server", "tests/certificates"):
        leave = shutil.ignore_patterns("__pycache__", "static", "_build")
        shutil.copytree(ROOT / part, copy / part, ignore=leave)
    for file in ("tests/__init__.py", "tests/whole/new_call.py"):
        (copy / file).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / file, copy / file)
    for file, before, text in EDITS:
        path = copy / "src/podwright" / file
        assert path.read_text().count(before) >= 1, file
        path.write_text(path.read_text().replace(before, text, 1))

    made = _run(copy, "-m", "tools.generate_wire")

    assert "podwright_v1_pb2.py" in made
    assert _run(copy, "tests/whole/new_call.py", str(tmp_path)).splitlines() == [
        "unix administrator OK RACK 3",
        "key administrator OK RACK 3",
        "unix user PERMISSION_DENIED ",
        "events OK OK PERMISSION_DENIED",
        "asked again 2",
        "| `LabelMachine` | yes | - | - | - | - |",
        "| `LabelMachine` | `Label` | `Label` | twice has the effect of once |",
        "| `LabelMachine` | machine | the caller, the object and the outcome |",
    ]
    generated = {"wire/podwright_v1.proto", "wire/_generated/podwright_v1_pb2.py"}
    changed = {
        str(path.relative_to(copy / "src/podwright"))
        for path in (copy / "src/podwright").rglob("*")
        if path.suffix in (".py", ".proto")
        and path.read_bytes() != (ROOT / path.relative_to(copy)).read_bytes()
    }
    assert changed - generated == {file for file, _, _ in EDITS}
    assert len(changed - generated) == 3
