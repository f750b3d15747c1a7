"""The options of poprun: their table, the command line, the configuration file, the environment."""
