"""The API server: one interface, the real implementation and the one in memory."""
