"""The instances of one host: the run's folder, bindings, output, and how each one ended."""
