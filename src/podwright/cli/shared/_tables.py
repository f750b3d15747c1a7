"""What `replay` imports of podwright.tables."""

from podwright.tables import printable as printable
from podwright.tables import table as table
