"""Times and memory as sbatch, sacct, scontrol and slurm.conf write them."""

from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwright.slurm.site.time_and_memory import memory_bytes, time_seconds


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("30", 1800),
        ("30:15", 1815),
        ("1:30:15", 5415),
        ("2-", 172800),
        ("2-12", 216000),
        ("2-12:30", 217800),
        ("1-02:03:04", 93784),
        ("02:03.500", 123.5),
        ("00:00:00", 0),
        ("UNLIMITED", math.inf),
        ("infinite", math.inf),
        ("-1", math.inf),
    ],
)
def test_a_time_is_read_in_each_of_slurms_forms(text: str, wanted: float) -> None:
    assert time_seconds(text) == wanted


@pytest.mark.parametrize(
    "text", ["", "-", "-2", "1.5", "1:2:3:4", "2-1:2:3:4", "1h", "٣", "1:", "x-1"]
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        time_seconds(text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("4000", 4000 << 20),
        ("4G", 4 << 30),
        ("512k", 512 << 10),
        ("1.5TB", 3 << 39),
        ("0", 0),
        ("2P", 2 << 50),
    ],
)
def test_memory_is_in_mib_without_a_unit(text: str, wanted: int) -> None:
    assert memory_bytes(text) == wanted


def test_accounting_counts_bytes_without_a_unit() -> None:
    assert memory_bytes("18446744073709551614", 1) == 18446744073709551614
    assert memory_bytes("3", 1) == 3


@pytest.mark.parametrize("text", ["", "G", "4X", "-4", "4 G", "1.G", "4GG", "nan", "inf"])
def test_what_is_no_memory_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an amount of memory"):
        memory_bytes(text)


@given(st.text(max_size=12))
def test_no_text_does_anything_but_be_read_or_refused(text: str) -> None:
    for read in (time_seconds, memory_bytes):
        with contextlib.suppress(ValueError):
            assert read(text) >= 0
