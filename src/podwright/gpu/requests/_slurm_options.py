"""Which options sbatch, salloc and srun know, and since when: Slurm's own list, as data.

A request must be read as Slurm reads it (abbreviations, short forms, values in the next word),
and an option that a site's Slurm lacks must be told from a misspelt one. The table was taken
from the option lists of Slurm 20.11 to 26.05.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from podwright.errors import InvalidRequest
from podwright.slurm.site.releases import SlurmVersion, parse_version

COMMANDS = {"sbatch": "b", "salloc": "a", "srun": "s"}


class SlurmOption(NamedTuple):
    """An option. `argument` is r (required), o (optional) or n (none)."""

    name: str
    short: str
    argument: str
    commands: str
    since: SlurmVersion
    until: SlurmVersion  # the first version without it


class Given(NamedTuple):
    """One option as it was written."""

    name: str
    value: str
    text: str


# name, short form, argument, commands (a salloc, b sbatch, s srun), since, first version without
_OPTION_TABLE = """
accel-bind - r s
account A r abs
acctg-freq - r abs
array a r b
async - n s 26.05
autocomplete - r abs 23.02
batch - r b
bb - r abs
bbf - r abs
bcast - o s
bcast-exclude - r s 21.08
begin b r abs
bell - n a
chdir D r abs
cluster - r abs
cluster-constraint - r abs
clusters M r abs
comment - r abs
compress - o s
consolidate-segments - n abs 25.11
constraint C r abs
container - r abs 21.08
container-id - r abs 23.02
container-type - r abs 26.05
context - r abs 21.08
contiguous - n abs
core-spec S r abs
cores-per-socket - r abs
cpu-bind - r s
cpu-freq - r abs
cpu_bind - r s
cpus-per-gpu - r abs
cpus-per-task c r abs
deadline - r abs
delay-boot - r abs
dependency d r abs
disable-status X n s
distribution m r abs
epilog - r s
error e r bs
exact - n s
exclude x r abs
exclusive - o abs
export - r bs
export-file - r b
external - n b 25.05
external-launcher - o s 23.11
extra - r abs 23.02
extra-node-info B r abs
get-user-env - o b
gid - r b
gpu-bind - r abs
gpu-freq - r abs
gpus G r abs
gpus-per-node - r abs
gpus-per-socket - r abs
gpus-per-task - r abs
gres - r abs
gres-flags - r abs
help h n abs
het-group - r s
hint - r abs
hold H n abs
ignore-pbs - n b
ignore-signals - r s 26.05
immediate I o as
input i r bs
interactive - n s
job-name J r abs
jobid - r s
kill-command K o a
kill-on-bad-exit K o s
kill-on-invalid-dep - r b
label l n s
licenses L r abs
mail-type - r abs
mail-user - r abs
mcs-label - r abs
mem - r abs
mem-bind - r abs
mem-per-cpu - r abs
mem-per-gpu - r abs
mem-update - r abs 26.05
mincpus - r abs
mpi - r s
msg-timeout - r s
multi-prog - n s
network - r abs
nice - o abs
no-allocate Z n s
no-bell - n a
no-kill k o abs
no-requeue - n b
no-shell - n a
nodefile F r abs
nodelist w r abs
nodes N r abs
ntasks n r abs
ntasks-per-core - r abs
ntasks-per-gpu - r abs
ntasks-per-node - r abs
ntasks-per-socket - r abs
ntasks-per-tres - r abs
oom-kill-step - o abs 24.11
open-mode - r bs
output o r bs
overcommit O n abs
overlap - o s
oversubscribe s n abs
pack-group - r s
parsable - n bs
partition p r abs
power - r abs - 24.05
prefer - r abs 22.05
preserve-env E n s
priority - r abs
profile - r abs
prolog - r s
propagate - o bs
pty - o s
qos q r abs
quiet Q n abs
quit-on-interrupt - n s
reboot - n abs
relative r r s
requeue - o b
reservation - r abs
resources - r abs 25.11
resv-ports - o abs
segment - r abs 24.05
send-libs - o s 21.08
signal - r abs
slurmd-debug - r s
sockets-per-node - r abs
spread-job - n abs
spread-segments - n abs 25.11
stepmgr - n abs 24.05
switches - r abs
task-epilog - r s
task-prolog - r s
tasks-per-node - r abs
test-only - n bs
thread-spec - r abs
threads T r s
threads-per-core - r abs
time t r abs
time-min - r abs
tmp - r abs
treewidth - r s 23.11
tres-bind - r abs 23.11
tres-per-task - r abs 23.02
uid - r b
unbuffered u n s
usage - n abs
use-min-nodes - n abs
verbose v n abs
version V n abs
wait W r s
wait W n b
wait-all-nodes - r ab
wait-for-children - n s 25.05
wckey - r abs
whole - n s
wrap - r b
x11 - o as
"""


def _read_option_row(table_row: str) -> SlurmOption:
    columns = table_row.split()
    since_version = parse_version(columns[4]) if len(columns) > 4 and columns[4] != "-" else (0, 0)
    until_version = parse_version(columns[5]) if len(columns) > 5 else (99, 0)
    return SlurmOption(
        columns[0],
        "" if columns[1] == "-" else columns[1],
        columns[2],
        columns[3],
        since_version,
        until_version,
    )


OPTIONS: tuple[SlurmOption, ...] = tuple(
    _read_option_row(row) for row in _OPTION_TABLE.strip().splitlines()
)


def known(command: str) -> dict[str, SlurmOption]:
    """The long options of one command, of all versions."""
    command_letter = COMMANDS[command]
    return {option.name: option for option in OPTIONS if command_letter in option.commands}


def find_option(option_name: str, command: str) -> SlurmOption:
    """The option of this long name or unambiguous beginning; InvalidRequest with the nearest."""
    options_by_name = known(command)
    if option_name in options_by_name:
        # srun itself has both spellings.
        return options_by_name["cpu-bind" if option_name == "cpu_bind" else option_name]
    matching_options = [
        option for full_name, option in options_by_name.items() if full_name.startswith(option_name)
    ]
    if len(matching_options) == 1:
        return matching_options[0]
    if matching_options:
        raise InvalidRequest(
            f"--{option_name} is ambiguous",
            would_work="Write one of "
            + ", ".join(f"--{option.name}" for option in matching_options),
            option=option_name,
        )
    raise InvalidRequest(
        f"{command} has no option --{option_name}",
        would_work=_nearest_hint(option_name, options_by_name),
        option=option_name,
    )


def _nearest_hint(option_name: str, option_names: Iterable[str]) -> str:
    import difflib  # only on the way to an error

    close_matches = difflib.get_close_matches(option_name, list(option_names), n=1, cutoff=0.5)
    return f"The nearest is --{close_matches[0]}" if close_matches else ""


def parse_options(arguments: list[str], command: str) -> tuple[list[Given], list[str]]:
    """The options at the front of these words, and the words that follow them.

    Reads as getopt does: `--name=value`, `--name value`, `-N2`, `-N 2`, `--` ends. Raises
    InvalidRequest for what the command does not know.
    """
    given_options: list[Given] = []
    options_by_letter = {
        known_option.short: known_option
        for known_option in known(command).values()
        if known_option.short
    }
    remaining_arguments = list(arguments)
    while (
        remaining_arguments
        and remaining_arguments[0].startswith("-")
        and remaining_arguments[0] != "-"
    ):
        argument = remaining_arguments.pop(0)
        if argument == "--":
            break
        if argument.startswith("--"):
            option_name, equals_sign, option_value = argument[2:].partition("=")
            option = find_option(option_name, command)
            written_text = argument
            if option.argument == "r" and not equals_sign:
                if not remaining_arguments:
                    raise InvalidRequest(f"--{option.name} needs a value", option=option.name)
                option_value = remaining_arguments.pop(0)
                written_text = f"{argument} {option_value}"
            if option.argument == "n" and equals_sign:
                raise InvalidRequest(f"--{option.name} takes no value", option=option.name)
            given_options.append(Given(option.name, option_value, written_text))
            continue
        remaining_letters = argument[1:]
        while remaining_letters:
            option_letter, remaining_letters = remaining_letters[0], remaining_letters[1:]
            if option_letter not in options_by_letter:
                raise InvalidRequest(
                    f"{command} has no option -{option_letter}", option=option_letter
                )
            option, option_value, written_text = (
                options_by_letter[option_letter],
                "",
                f"-{option_letter}",
            )
            if option.argument == "r":
                if remaining_letters:
                    option_value, remaining_letters = remaining_letters, ""
                    written_text = f"-{option_letter}{option_value}"
                elif remaining_arguments:
                    option_value = remaining_arguments.pop(0)
                    written_text = f"-{option_letter} {option_value}"
                else:
                    raise InvalidRequest(f"-{option_letter} needs a value", option=option.name)
            elif option.argument == "o":
                option_value, remaining_letters = remaining_letters, ""
            given_options.append(Given(option.name, option_value, written_text))
    return given_options, remaining_arguments
