"""The names that `podwright` offers: each works after any import, and costs nothing before
its use.
"""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import podwright
from podwright import errors, wire
from tests.whole.conftest import Pod as Server

#: Imports every module, then calls every public function, and says what each did.
_ALL = """
import asyncio, importlib, json, os, pkgutil, sys
import podwright, popdist
WANTS = {"popdist.jax", "popdist.popart", "popdist.poptorch", "popdist.tensorflow", "popdist.torch"}
count = 0
for package in (podwright, popdist):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if module.name.endswith("__main__") or module.name in WANTS:
            continue
        importlib.import_module(module.name)
        count += 1

def called():
    return 7

said = {"modules": count}
with podwright.connect() as pod:
    said["connect"] = pod.info.simulated
with podwright.partition(2) as held:
    said["partition"] = held.size
said["run"] = podwright.run(["true"]).exit_code
said["run_async"] = asyncio.run(podwright.run_async(["true"])).exit_code
said["launch"] = podwright.launch(called).results()
print(json.dumps(said))
"""


def test_every_public_function_works_after_every_module_was_imported(server: Server) -> None:
    """A subpackage and a function of the same name would hide each other."""
    words = [sys.executable, "-W", "ignore", "-c", _ALL]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said.pop("modules") > 300
    assert said == {
        "connect": True,
        "partition": 2,
        "run": 0,
        "run_async": 0,
        "launch": [7],
    }
    functions = {name for name in podwright.__all__ if inspect.isfunction(getattr(podwright, name))}
    assert functions == said.keys()


def test_importing_podwright_loads_nothing_else() -> None:
    code = (
        "import sys; before = set(sys.modules); import podwright\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["__future__", "podwright", "podwright._version"]


def _values(kind: type) -> set[type]:
    """A value that travels, and those in it."""
    inner = {
        one
        for field in msgspec.structs.fields(kind)
        for name in re.findall(r"\w+", str(field.type))
        if inspect.isclass(one := getattr(wire, name, None)) and issubclass(one, wire.Value)
    }
    return {kind}.union(*map(_values, inner))


def _errors() -> list[str]:
    kinds = {name: kind for name, kind in vars(errors).items() if inspect.isclass(kind)}
    return [name for name, kind in kinds.items() if issubclass(kind, Exception)]


def test_the_reference_has_no_holes() -> None:
    """Every public name, and every value that a public function answers with."""
    page = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
    there = set(re.findall(r"^\.\. auto(?:class|function|exception):: ([\w.]+)", page, re.M))
    public = {f"podwright.{name}" for name in podwright.__all__}
    public |= {f"podwright.errors.{name}" for name in _errors()}
    functions = [
        method
        for kind in (podwright.Pod, podwright.PodAdmin, podwright.Partition)
        for name, method in inspect.getmembers(kind)
        if not name.startswith("_")
    ]
    for function in functions:
        getter = function.fget if isinstance(function, property) else function
        assert getter
        for name in re.findall(r"\w+", str(inspect.signature(getter).return_annotation)):
            kind = getattr(wire, name, None)
            if inspect.isclass(kind) and issubclass(kind, wire.Value):
                public |= {f"podwright.wire.{value.__name__}" for value in _values(kind)}
    public -= {f"podwright.wire.{name}" for name in podwright.__all__}
    rest = {"__version__", "errors", "PodwrightError"}
    assert public - {f"podwright.{name}" for name in rest} == there


@pytest.mark.parametrize("module", [podwright, errors])
def test_every_name_that_is_listed_is_there_and_has_words(module: object) -> None:
    names = getattr(module, "__all__", None) or [
        name for name, kind in vars(module).items() if inspect.isclass(kind)
    ]
    for name in names:
        found = getattr(module, name)
        assert name in dir(module)
        if inspect.isclass(found) or inspect.isfunction(found):
            assert inspect.getdoc(found), name
    with pytest.raises(AttributeError):
        module.nothing_of_that_name  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize(
    "kind",
    [podwright.Pod, podwright.PodAdmin, podwright.Partition, podwright.Job],
)
def test_every_public_method_has_words(kind: type) -> None:
    for name, method in vars(kind).items():
        if not name.startswith("_"):
            assert inspect.getdoc(method), f"{kind.__name__}.{name}"
