"""Generates job scripts that are fitted to a site."""

from ._fit_templates import fit_site as fit_site
from ._render import TEMPLATES as TEMPLATES
from ._render import Template as Template
from ._render import all_templates as all_templates
from ._render import render as render
from ._template_values import Fit as Fit
from ._template_values import TemplateOptions as TemplateOptions
from ._template_values import nodes_with as nodes_with
from ._template_values import of_inventory as of_inventory
from ._template_values import of_slurm as of_slurm
