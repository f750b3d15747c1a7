"""Generates job scripts that are fitted to a site."""

from podwright.gpu.templates._fit_templates import fit_site
from podwright.gpu.templates._render import TEMPLATES, Template, all_templates, render
from podwright.gpu.templates._template_values import (
    Fit,
    TemplateOptions,
    nodes_with,
    of_inventory,
    of_slurm,
)

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
