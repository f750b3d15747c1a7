"""What each way of scheduling devices behind a fabric does on real Slurm, measured.

`python -m tests.outer.experiments` (as root) runs every scenario with every mechanism and prints
the table of docs/slurm/mechanisms.md. A small stand-in plays the server: a pod of 256 devices.
"""
