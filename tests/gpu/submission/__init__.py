"""Job scripts read at submission."""
