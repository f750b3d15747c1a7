"""The commands. They parse arguments, call other packages and print; they contain no logic."""
