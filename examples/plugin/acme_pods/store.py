"""A store that forgets: `vipu-server --storage acme://anything`."""

from podwright.store import MemoryStore


def open_store(place: str) -> MemoryStore:
    """A real one connects to the place, in `open`."""
    return MemoryStore()
