"""Which devices a request gets. No I/O, no clock, no randomness."""

from podwright.placement._index import Index
from podwright.placement._values import Block, Placement, Refusal, Request

__all__ = ["Block", "Index", "Placement", "Refusal", "Request"]
