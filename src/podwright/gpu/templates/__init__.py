"""Generates job scripts that are fitted to a site."""

from podwright.gpu.templates._fit import (
    Fit,
    TemplateOptions,
    nodes_with,
    of_inventory,
    of_slurm,
)
from podwright.gpu.templates._fit_site import fit_site
from podwright.gpu.templates._render import TEMPLATES, Template, all_templates, render

__all__ = [
    "TEMPLATES",
    "Fit",
    "Template",
    "TemplateOptions",
    "all_templates",
    "fit_site",
    "nodes_with",
    "of_inventory",
    "of_slurm",
    "render",
]
