"""The version, apart from the public names, so that every room can say it."""

__version__ = "0.1.0"
