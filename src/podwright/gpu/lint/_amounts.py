"""Whole numbers as a script writes them: known, in terms of Slurm's variables, or not known."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ast

_MAX_EXPRESSION = 200  # characters: no script writes more, and none may exhaust the parser
_MARKED_NAME_PATTERN = re.compile(r"\$\{?([A-Za-z_]\w*)\}?")


class Amount:
    """A sum of products of Slurm's variables, such as `8` or `SLURM_NNODES * 4`.

    terms: the factor of each product, by the names in it; `()` for the number alone.
    """

    __slots__ = ("terms",)

    def __init__(self, terms: Mapping[tuple[str, ...], int]) -> None:
        self.terms = {names: factor for names, factor in terms.items() if factor}

    @property
    def number(self) -> int | None:
        """The number, if no variable is left in it."""
        return self.terms.get((), 0) if set(self.terms) <= {()} else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Amount) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(frozenset(self.terms.items()))

    def __add__(self, other: Amount) -> Amount:
        names = {*self.terms, *other.terms}
        return Amount({name: self.terms.get(name, 0) + other.terms.get(name, 0) for name in names})

    def __mul__(self, other: Amount) -> Amount:
        product = Amount({})
        for names, factor in self.terms.items():
            for other_names, other_factor in other.terms.items():
                merged = tuple(sorted((*names, *other_names)))
                product += Amount({merged: factor * other_factor})
        return product

    def divided_by(self, other: Amount) -> Amount | None:
        """Return the quotient, if the division leaves no remainder whatever the variables are."""
        if len(other.terms) != 1:
            return None
        ((divisor_names, divisor),) = other.terms.items()
        quotient: dict[tuple[str, ...], int] = {}
        for names, factor in self.terms.items():
            left = list(names)
            for name in divisor_names:
                if name not in left:
                    return None
                left.remove(name)
            if factor % divisor:
                return None
            quotient[tuple(left)] = factor // divisor
        return Amount(quotient)


Lookup = Callable[[str], "Amount | None"]


def constant(number: int) -> Amount:
    """Return a number as an amount."""
    return Amount({(): number})


def variable(name: str) -> Amount:
    """Return one of Slurm's variables as an amount."""
    return Amount({(name,): 1})


def calculate(expression: str, lookup: Lookup) -> Amount | None:
    """Return what shell arithmetic makes of an expression; None for what it cannot decide."""
    expression = _MARKED_NAME_PATTERN.sub(r"\1", expression).strip()
    if len(expression) > _MAX_EXPRESSION:
        return None
    if expression.isdecimal() and expression.isascii():
        return constant(int(expression)) if expression == "0" or expression[0] != "0" else None
    import ast

    try:
        tree = ast.parse(expression, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return _amount_of(tree.body, lookup)


def _amount_of(node: ast.expr, lookup: Lookup) -> Amount | None:
    import ast

    if isinstance(node, ast.Constant) and type(node.value) is int:
        return constant(node.value)
    if isinstance(node, ast.Name):
        return lookup(node.id)
    if not isinstance(node, ast.BinOp):
        return None
    left, right = _amount_of(node.left, lookup), _amount_of(node.right, lookup)
    if left is None or right is None:
        return None
    if isinstance(node.op, ast.Add):
        return left + right
    if isinstance(node.op, ast.Sub):
        return left + right * constant(-1)
    if isinstance(node.op, ast.Mult):
        return left * right
    if not isinstance(node.op, ast.Div):
        return None
    if left.number is not None and right.number:
        return constant(left.number // right.number)  # as the shell rounds what is not negative
    return left.divided_by(right)
