"""What administrators own: users, allocations, clusters, privacy, the audit."""
