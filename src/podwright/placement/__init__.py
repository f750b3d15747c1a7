"""Which devices a request gets. No I/O, no clock, no randomness."""

from podwright.placement._values import Block, Placement, Refusal, Request

__all__ = ["Block", "Placement", "Refusal", "Request"]
