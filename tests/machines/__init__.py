"""Tests of what is read of a machine's GPUs: on real ones where there are, else on the stand-in."""
