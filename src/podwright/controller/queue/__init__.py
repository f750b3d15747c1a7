"""The queue: who waits for devices, and who is served next."""
