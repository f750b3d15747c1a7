"""Launching: options become a plan, the plan a run; whatever happens, nothing is left behind."""

from podwright.launch._config import write_config
from podwright.launch._engine import Command, Engine, FakeEngine, Mpirun
from podwright.launch._launch import launch
from podwright.launch._options import Options, parse
from podwright.launch._output import Output
from podwright.launch._plan import Instance, Plan, make_plan, places_instances
from podwright.launch._table import OPTIONS, help_text
from podwright.launch._would import would_run

__all__ = [
    "OPTIONS",
    "Command",
    "Engine",
    "FakeEngine",
    "Instance",
    "Mpirun",
    "Options",
    "Output",
    "Plan",
    "help_text",
    "launch",
    "make_plan",
    "parse",
    "places_instances",
    "would_run",
    "write_config",
]
