"""How state reaches hardware: steps, fences, heartbeats, recovery, the registry of machines."""
