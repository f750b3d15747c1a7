"""Tests of the health of GPU nodes."""
