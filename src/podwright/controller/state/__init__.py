"""The state of a pod: records, journal, leases, and `ControllerState`, which holds them."""
