"""Which options sbatch, salloc and srun know, and since when: Slurm's own list, as data.

A request must be read as Slurm reads it (abbreviations, short forms, values in the next word),
and an option that a site's Slurm lacks must be told from a misspelt one. The table was taken
from the option lists of Slurm 20.11 to 26.05.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from podwright.errors import InvalidRequest
from podwright.slurm.site.releases import Version, parse_version

COMMANDS = {"sbatch": "b", "salloc": "a", "srun": "s"}


class SlurmOption(NamedTuple):
    """An option. `argument` is r (required), o (optional) or n (none)."""

    name: str
    short: str
    argument: str
    commands: str
    since: Version
    until: Version  # the first version without it


class Given(NamedTuple):
    """One option as it was written."""

    name: str
    value: str
    text: str


# name, short form, argument, commands (a salloc, b sbatch, s srun), since, first version without
_TABLE = """
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


def _read(row: str) -> SlurmOption:
    words = row.split()
    since = parse_version(words[4]) if len(words) > 4 and words[4] != "-" else (0, 0)
    until = parse_version(words[5]) if len(words) > 5 else (99, 0)
    return SlurmOption(
        words[0], "" if words[1] == "-" else words[1], words[2], words[3], since, until
    )


OPTIONS: tuple[SlurmOption, ...] = tuple(_read(row) for row in _TABLE.strip().splitlines())


def known(command: str) -> dict[str, SlurmOption]:
    """The long options of one command, of all versions."""
    letter = COMMANDS[command]
    return {option.name: option for option in OPTIONS if letter in option.commands}


def find_option(name: str, command: str) -> SlurmOption:
    """The option of this long name or unambiguous beginning; InvalidRequest with the nearest."""
    table = known(command)
    if name in table:
        return table["cpu-bind" if name == "cpu_bind" else name]  # both spellings are srun's own
    fitting = [option for key, option in table.items() if key.startswith(name)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise InvalidRequest(
            f"--{name} is ambiguous",
            would_work="Write one of " + ", ".join(f"--{option.name}" for option in fitting),
            option=name,
        )
    raise InvalidRequest(
        f"{command} has no option --{name}", would_work=_nearest(name, table), option=name
    )


def _nearest(name: str, table: Iterable[str]) -> str:
    import difflib  # only on the way to an error

    close = difflib.get_close_matches(name, list(table), n=1, cutoff=0.5)
    return f"The nearest is --{close[0]}" if close else ""


def parse_options(words: list[str], command: str) -> tuple[list[Given], list[str]]:
    """The options at the front of these words, and the words that follow them.

    Reads as getopt does: `--name=value`, `--name value`, `-N2`, `-N 2`, `--` ends. Raises
    InvalidRequest for what the command does not know.
    """
    given: list[Given] = []
    short = {
        known_option.short: known_option
        for known_option in known(command).values()
        if known_option.short
    }
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word == "--":
            break
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            option = find_option(name, command)
            text = word
            if option.argument == "r" and not equals:
                if not rest:
                    raise InvalidRequest(f"--{option.name} needs a value", option=option.name)
                value = rest.pop(0)
                text = f"{word} {value}"
            if option.argument == "n" and equals:
                raise InvalidRequest(f"--{option.name} takes no value", option=option.name)
            given.append(Given(option.name, value, text))
            continue
        letters = word[1:]
        while letters:
            letter, letters = letters[0], letters[1:]
            if letter not in short:
                raise InvalidRequest(f"{command} has no option -{letter}", option=letter)
            option, value, text = short[letter], "", f"-{letter}"
            if option.argument == "r":
                if letters:
                    value, letters = letters, ""
                    text = f"-{letter}{value}"
                elif rest:
                    value = rest.pop(0)
                    text = f"-{letter} {value}"
                else:
                    raise InvalidRequest(f"-{letter} needs a value", option=option.name)
            elif option.argument == "o":
                value, letters = letters, ""
            given.append(Given(option.name, value, text))
    return given, rest
