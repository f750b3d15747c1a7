"""An IPUJob: its definition, what is seen of it, and what is to be done. No effects."""
