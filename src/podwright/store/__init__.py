"""Durable state behind the controller."""

from podwright.store._door import Change, Delete, Opened, Put, Store

__all__ = ["Change", "Delete", "Opened", "Put", "Store"]
