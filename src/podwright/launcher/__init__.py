"""The launcher: it makes a plan from the options, runs it, and leaves nothing behind."""

from podwright.launcher.instances._exit_cause import TIMED_OUT
from podwright.launcher.instances._function_exchange import Exchange
from podwright.launcher.instances._poprun_output import Output
from podwright.launcher.instances._run_folder import RunFolder, make_folder
from podwright.launcher.options._command_line import parse
from podwright.launcher.options._config import write_config
from podwright.launcher.options._option_table import OPTIONS, help_text
from podwright.launcher.options._options import Options
from podwright.launcher.plan._dry_run import would_run
from podwright.launcher.plan._plan import Instance, Plan, make_plan, places_instances
from podwright.launcher.run._launch import LaunchResult, launch, run_plan
from podwright.launcher.run._mpirun_engine import Command, Engine, Mpirun

__all__ = [
    "OPTIONS",
    "TIMED_OUT",
    "Command",
    "Engine",
    "Exchange",
    "Instance",
    "LaunchResult",
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
    "run_plan",
    "would_run",
    "write_config",
]
