"""Verbs about a launch: its timeline, and the pod while it runs."""
