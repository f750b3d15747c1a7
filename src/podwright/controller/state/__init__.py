"""The state of a pod: records, journal, leases, and the core that holds them."""
