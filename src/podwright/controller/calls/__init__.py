"""The calls of the server, one function each, and the views that they return."""
