"""Shell arithmetic, with Slurm's variables left in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwright.gpu.lint._amounts import Amount, calculate, constant, variable

NODES = variable("SLURM_NNODES")


def meaning(name: str) -> Amount | None:
    return NODES if name == "SLURM_NNODES" else None


@pytest.mark.parametrize(
    ("expression", "amount"),
    [
        ("8", constant(8)),
        ("2 * (3 + 1)", constant(8)),
        ("7 / 2", constant(3)),
        ("10 - 2", constant(8)),
        ("$SLURM_NNODES * 8", NODES * constant(8)),
        ("8*${SLURM_NNODES}", NODES * constant(8)),
        ("SLURM_NNODES + SLURM_NNODES", NODES * constant(2)),
        ("SLURM_NNODES * 8 / SLURM_NNODES", constant(8)),
        ("SLURM_NNODES / 2", None),
        ("OTHER * 8", None),
        ("010", None),  # octal
        ("8 > 2", None),
        ("1 / 0", None),
        ("8 8", None),
        ("(" * 300, None),
        ("", None),
    ],
)
def test_an_expression_is_a_number_or_one_of_slurms_variables_or_not_known(
    expression: str, amount: Amount | None
) -> None:
    assert calculate(expression, meaning) == amount


small = st.integers(0, 9)


@given(small, small, small, small)
def test_an_amount_is_what_its_variables_make_of_it(a: int, b: int, c: int, nodes: int) -> None:
    amount = (NODES * constant(a) + constant(b)) * (NODES + constant(c))
    value = sum(factor * nodes ** len(names) for names, factor in amount.terms.items())
    assert value == (nodes * a + b) * (nodes + c)
    assert (amount.number is None) == (a > 0 or b > 0)


def test_a_share_is_known_if_the_division_leaves_nothing_over() -> None:
    assert (NODES * constant(8)).divided_by(NODES) == constant(8)
    assert (NODES * constant(8)).divided_by(constant(4)) == NODES * constant(2)
    assert (NODES * constant(8) + constant(1)).divided_by(NODES) is None
    assert constant(7).divided_by(constant(2)) is None
    assert constant(7).divided_by(constant(0)) is None
