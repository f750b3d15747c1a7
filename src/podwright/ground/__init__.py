"""Small things that every room may use: options, tables, plugins, endpoints, lazy names."""
