"""Tables and cards: how values are laid out for people, by whichever room has the values."""

from podwright.tables._colours import colours
from podwright.tables._layout import EMPTY, Table, card, natural, printable, table, table_of

__all__ = ["EMPTY", "Table", "card", "colours", "natural", "printable", "table", "table_of"]
