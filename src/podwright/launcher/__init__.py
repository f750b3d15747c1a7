"""The launcher: it makes a plan from the options, runs it, and leaves nothing behind."""

from .instances._exit_cause import TIMED_OUT as TIMED_OUT
from .instances._function_exchange import Exchange as Exchange
from .instances._poprun_output import Output as Output
from .instances._run_folder import RunFolder as RunFolder
from .instances._run_folder import make_folder as make_folder
from .options._command_line import parse as parse
from .options._config import write_config as write_config
from .options._option_table import OPTIONS as OPTIONS
from .options._option_table import Options as Options
from .options._option_table import help_text as help_text
from .plan._dry_run import would_run as would_run
from .plan._make_plan import make_plan as make_plan
from .plan._make_plan import places_instances as places_instances
from .plan._plan import Instance as Instance
from .plan._plan import Plan as Plan
from .run._launch import LaunchResult as LaunchResult
from .run._launch import launch as launch
from .run._launch import run_plan as run_plan
from .run._mpirun_engine import Command as Command
from .run._mpirun_engine import Engine as Engine
from .run._mpirun_engine import Mpirun as Mpirun
