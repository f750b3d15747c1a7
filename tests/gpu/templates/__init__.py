"""Job scripts fitted to a site."""
