"""Launching: options become a plan, the plan a run; whatever happens, nothing is left behind."""

from podwright.launcher._command_line import parse
from podwright.launcher._config import write_config
from podwright.launcher._dry_run import would_run
from podwright.launcher._engine import Command, Engine, FakeEngine, Mpirun
from podwright.launcher._exchange import Exchange
from podwright.launcher._folder import RunFolder, make_folder
from podwright.launcher._launch import launch
from podwright.launcher._option_table import OPTIONS, help_text
from podwright.launcher._options import Options
from podwright.launcher._output import Output
from podwright.launcher._plan import Instance, Plan, make_plan, places_instances

__all__ = [
    "OPTIONS",
    "Command",
    "Engine",
    "Exchange",
    "FakeEngine",
    "Instance",
    "Mpirun",
    "Options",
    "Output",
    "Plan",
    "RunFolder",
    "help_text",
    "launch",
    "make_folder",
    "make_plan",
    "parse",
    "places_instances",
    "would_run",
    "write_config",
]
