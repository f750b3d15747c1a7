"""Job scripts that run, fitted to a site."""

from podwright.slurm.gpus.templates._fit import (
    Fit,
    TemplateWishes,
    nodes_with,
    of_inventory,
    of_slurm,
)
from podwright.slurm.gpus.templates._render import TEMPLATES, Template, all_templates, render

__all__ = [
    "TEMPLATES",
    "Fit",
    "Template",
    "TemplateWishes",
    "all_templates",
    "nodes_with",
    "of_inventory",
    "of_slurm",
    "render",
]
