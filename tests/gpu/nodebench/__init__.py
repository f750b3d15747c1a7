"""Tests of the speed of nodes."""
