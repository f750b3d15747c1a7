"""The verbs of `vipu-admin`: clusters, machines, users, allocations, the server's care."""
