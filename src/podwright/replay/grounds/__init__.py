"""The grounds on which simulated jobs run (pods, GPU nodes, hosts), and the ways to compare."""
