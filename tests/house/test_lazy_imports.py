"""Packages load their modules on first use, and type checkers see the same names."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from podwright.ground.lazy_imports import lazy_names

SRC = Path(__file__).resolve().parents[2] / "src"
#: The packages that use `lazy_names`.
PACKAGES = sorted(
    ".".join(path.parent.relative_to(SRC).parts)
    for path in SRC.rglob("__init__.py")
    if "lazy_names(__name__" in path.read_text()
)


def rows_of(package: str) -> dict[str, set[str]]:
    """The names that a package loads later, by module, as the second argument has them."""
    module = importlib.import_module(package)
    (call,) = (
        node
        for node in ast.walk(tree_of(package))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "lazy_names"
    )
    rows = eval(ast.unparse(call.args[1]), vars(module))
    return {name: set(names) for name, names in rows.items()}


def tree_of(package: str) -> ast.Module:
    return ast.parse((SRC.joinpath(*package.split(".")) / "__init__.py").read_text())


def typed_of(package: str) -> dict[str, set[str]]:
    """The names that type checkers see only under `if TYPE_CHECKING:`, by module."""
    typed: dict[str, set[str]] = {}
    for node in tree_of(package).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for each in ast.walk(node):
                if isinstance(each, ast.ImportFrom) and each.module != package:
                    module = str(each.module).removeprefix(f"{package}.")
                    typed.setdefault(module, set()).update(alias.name for alias in each.names)
    return typed


def test_every_package_with_later_names_uses_the_one_function() -> None:
    assert {"podwright", "podwright.api", "podwright.server", "podwright.timeline"} <= {*PACKAGES}
    others = [
        path
        for path in SRC.rglob("__init__.py")
        if "def __getattr__" in (text := path.read_text()) and "lazy_names(__name__" not in text
    ]
    assert others == []


@pytest.mark.parametrize("package", PACKAGES)
def test_type_checkers_see_the_names_that_are_loaded(package: str) -> None:
    assert rows_of(package) == typed_of(package)
    module = importlib.import_module(package)
    assert {name for names in rows_of(package).values() for name in names} <= {*module.__all__}
    for name in module.__all__:
        getattr(module, name)
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'no_name'"):
        module.no_name  # noqa: B018


def test_a_module_is_loaded_with_the_first_of_its_names() -> None:
    """In a process of its own, since this one has loaded most of the house."""
    code = (
        "import sys, podwright.server as room\n"
        "def loaded(): return sorted(m for m in sys.modules if m.startswith('podwright.server.'))\n"
        "print(loaded())\n"
        "from podwright.server import SocketPlace\n"
        "print(loaded())\n"
    )
    lines = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    assert lines == ["[]", "['podwright.server._socket_lock']"]


def test_a_replaced_name_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    load = lazy_names("podwright.ground", {"plural": ("counted",)})
    original = load("counted")
    monkeypatch.setattr("podwright.ground.plural.counted", len)
    assert load("counted") is len is not original
