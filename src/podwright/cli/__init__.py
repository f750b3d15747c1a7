"""The commands: parse, call, print. No logic."""
