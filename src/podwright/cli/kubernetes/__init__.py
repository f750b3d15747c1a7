"""The verbs of `podwright kubernetes`."""
