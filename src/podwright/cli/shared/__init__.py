"""Shared parts of the commands: parsers, tables, JSON, errors, the connection to the server."""
