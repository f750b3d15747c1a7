"""The hosts of a launch, each of which is reached through one relay."""
