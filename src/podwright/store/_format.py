"""Which Podwright may open which store: two numbers that are kept in each store and each backup.

A build has a format, which grows whenever the meaning of what it writes changes. It also names the
oldest reader: the lowest format that can serve its records without losing anything that matters. A
build opens every store whose oldest reader is not above the build's own format, so builds of
neighbouring formats can follow each other in both directions. It refuses every other store before
it changes anything.

Builds before format 2 do not know these numbers. They look only at the version of the tables. That
version was raised once for this reason, so they refuse a store that a build of format 2 has opened.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from podwright.errors import Unavailable

#: The format of what this build writes. Raise it with every change of a record's meaning.
FORMAT: Final = 2
#: The lowest format that may serve what this build writes. Raise it when an older build would lose
#: or misread something. The way back to such a build is then a backup that it took itself.
OLDEST_READER: Final = 2


class Format(NamedTuple):
    """The two numbers of a store. A store without them has format 1, which every build reads."""

    number: int = 1
    oldest_reader: int = 1


OURS: Final = Format(FORMAT, OLDEST_READER)


def after(stored_format: Format) -> Format:
    """Return the numbers of a store that this build has opened.

    Records that a newer build wrote stay in it, so the oldest reader never falls.
    """
    return Format(FORMAT, max(stored_format.oldest_reader, OLDEST_READER))


def check(stored_format: Format, store_name: str) -> None:
    """Raise wire.Unavailable for a store or a backup that this build cannot read.

    store_name: "the store PATH", for the message.
    """
    if stored_format.oldest_reader > FORMAT:
        raise Unavailable(
            f"{store_name} was written by a newer Podwright (its format is {stored_format.number}, "
            "for readers "
            f"of format {stored_format.oldest_reader} or newer; this one's is {FORMAT})",
            would_work="run that Podwright or a newer one; the way back is a backup that this "
            "Podwright has taken itself",
            format=stored_format.number,
            oldest_reader=stored_format.oldest_reader,
        )
