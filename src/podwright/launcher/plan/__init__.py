"""The plan of a launch, made from its options: a value that prints itself before anything runs."""
