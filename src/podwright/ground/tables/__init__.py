"""Tables and cards: how values are laid out for people, by whichever room has the values."""

from ._colours import colours as colours
from ._layout import EMPTY as EMPTY
from ._layout import Table as Table
from ._layout import card as card
from ._layout import natural as natural
from ._layout import printable as printable
from ._layout import table as table
from ._layout import table_of as table_of
