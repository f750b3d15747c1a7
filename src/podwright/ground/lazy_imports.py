"""Names of a package that load their module when they are first used.

A package's `__init__` offers names from many modules, and most processes use few of them. With

    if TYPE_CHECKING:
        from podwright.server._server import Server

    if not TYPE_CHECKING:
        __getattr__ = lazy_names(__name__, {"_server": ("Server",)})

the package imports none of its modules. `from podwright.server import Server` imports the one that
has the name. The imports under `TYPE_CHECKING` are what type checkers, editors and the contracts of
imports read. The function itself is hidden from type checkers, which would otherwise take any
misspelt name for one of the package's. `tests/house/test_lazy_imports.py` compares both lists.
"""

from __future__ import annotations

#: As in `podwright/__init__.py`: every command imports this module, and none pays for `typing`.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def lazy_names(package: str, modules: Mapping[str, Sequence[str]]) -> Callable[[str], object]:
    """The `__getattr__` of a package (PEP 562), whose modules are loaded on first use.

    modules: the names that come from each module, by the module's name inside the package. Python
    asks the function only for names that the package lacks, so a name that the package imports
    itself needs no row. The function raises AttributeError for a name without a row. Nothing is
    cached: `importlib` knows what is loaded, and a test may replace a name in its module.
    """

    def load(name: str) -> object:
        import importlib

        for module, exported_names in modules.items():
            if name in exported_names:
                return getattr(importlib.import_module(f"{package}.{module}"), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return load
