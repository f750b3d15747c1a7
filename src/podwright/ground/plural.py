"""Counts and times in messages: `1 GPU`, `2 GPUs`, `1 device is`, `10 min`."""

from __future__ import annotations


def counted(count: int, noun: str, verb_forms: tuple[str, str] | None = None) -> str:
    """Return a count with its noun, in the singular for 1: `1 GPU`, `0 GPUs`, `2 boxes`.

    verb_forms: the forms that follow it, such as `("is", "are")`.
    """
    plural = f"{noun}es" if noun.endswith(("s", "x", "ch", "sh")) else f"{noun}s"
    if noun.endswith("y") and noun[-2:-1] not in "aeou":
        plural = f"{noun[:-1]}ies"
    counted_noun = f"{count:,} {noun if count == 1 else plural}"
    return f"{counted_noun} {verb_forms[count != 1]}" if verb_forms else counted_noun


def span(seconds: float) -> str:
    """Return a time in words: `90 s`, `10 min`, `2.5 h`, `3 days`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    hours = seconds / 3600
    return f"{hours:.1f} h" if hours < 48 else f"{hours / 24:.0f} days"
