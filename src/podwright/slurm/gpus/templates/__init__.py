"""Job scripts that run, fitted to a site."""

from podwright.slurm.gpus.templates._fit import Fit, Wishes, of_inventory, of_slurm
from podwright.slurm.gpus.templates._render import TEMPLATES, render

__all__ = ["TEMPLATES", "Fit", "Wishes", "of_inventory", "of_slurm", "render"]
