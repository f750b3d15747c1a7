"""Traces: recorded jobs, read from sacct, SWF or CSV, or made up."""
