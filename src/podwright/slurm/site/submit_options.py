"""Which options sbatch, salloc and srun have, since when, and what each is about: Slurm's own list,
as data.

The table was taken from the option lists of Slurm 20.11 to 26.05. What a twin is asked, what is
left out and what is refused follow from the column "about", so that no option is in none of them.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from podwright.slurm.site.releases import SlurmVersion, parse_version

#: Each command, and its letter in the table.
COMMANDS = {"sbatch": "b", "salloc": "a", "srun": "s"}
#: places: which nodes, CPUs, memory and GPUs the job gets, and when. state: likewise, by accounts
#: and reservations, which a twin has with the site's state alone. site: likewise, by what no twin
#: has. step: another job, or several, so that nothing can be said of this one. run: how the job
#: runs where it is.
About = Literal["places", "state", "site", "step", "run"]
_ABOUT_BY_LETTER: dict[str, About] = {
    "d": "places",
    "s": "state",
    "x": "site",
    "n": "step",
    "r": "run",
}


class SlurmOption(NamedTuple):
    """An option. `argument` is r (required), o (optional) or n (none)."""

    name: str
    short: str
    argument: str
    commands: str
    about: About
    since: SlurmVersion
    until: SlurmVersion  # the first version without it


# name, short form, argument, commands (a salloc, b sbatch, s srun), about, since, first version
# without it
_OPTION_TABLE = """
accel-bind - r s r
account A r abs s
acctg-freq - r abs r
array a r b x
async - n s r 26.05
autocomplete - r abs r 23.02
batch - r b x
bb - r abs x
bbf - r abs x
bcast - o s r
bcast-exclude - r s r 21.08
begin b r abs d
bell - n a r
chdir D r abs r
cluster - r abs x
cluster-constraint - r abs x
clusters M r abs x
comment - r abs r
compress - o s r
consolidate-segments - n abs d 25.11
constraint C r abs d
container - r abs r 21.08
container-id - r abs r 23.02
container-type - r abs r 26.05
context - r abs r 21.08
contiguous - n abs d
core-spec S r abs d
cores-per-socket - r abs d
cpu-bind - r s d
cpu-freq - r abs r
cpu_bind - r s d
cpus-per-gpu - r abs d
cpus-per-task c r abs d
deadline - r abs d
delay-boot - r abs d
dependency d r abs x
disable-status X n s r
distribution m r abs d
epilog - r s r
error e r bs r
exact - n s d
exclude x r abs d
exclusive - o abs d
export - r bs r
export-file - r b r
external - n b x 25.05
external-launcher - o s r 23.11
extra - r abs x 23.02
extra-node-info B r abs d
get-user-env - o a r - 24.11
get-user-env - o b r
gid - r a x - 24.11
gid - r b x
gpu-bind - r abs d
gpu-freq - r abs r
gpus G r abs d
gpus-per-node - r abs d
gpus-per-socket - r abs d
gpus-per-task - r abs d
gres - r abs d
gres-flags - r abs d
help h n abs r
het-group - r s n
hint - r abs d
hold H n abs d
ignore-pbs - n b r
ignore-signals - r s r 26.05
immediate I o as x
input i r bs r
interactive - n s r
job-name J r abs r
jobid - r s n
kill-command K o a r
kill-on-bad-exit K o s r
kill-on-invalid-dep - r b r
label l n s r
licenses L r abs x
mail-type - r abs r
mail-user - r abs r
mcs-label - r abs x
mem - r abs d
mem-bind - r abs d
mem-per-cpu - r abs d
mem-per-gpu - r abs d
mem-update - r abs x 26.05
mincpus - r abs d
mpi - r s r
msg-timeout - r s r
multi-prog - n s r
network - r abs r
nice - o abs d
no-allocate Z n s n
no-bell - n a r
no-kill k o abs r
no-requeue - n b r
no-shell - n a r
nodefile F r abs x
nodelist w r abs d
nodes N r abs d
ntasks n r abs d
ntasks-per-core - r abs d
ntasks-per-gpu - r abs d
ntasks-per-node - r abs d
ntasks-per-socket - r abs d
ntasks-per-tres - r abs d
oom-kill-step - o abs r 24.11
open-mode - r bs r
output o r bs r
overcommit O n abs d
overlap - o s d
oversubscribe s n abs d
pack-group - r s n
parsable - n bs r
partition p r abs d
power - r abs x - 24.05
prefer - r abs d 22.05
preserve-env E n s r
priority - r abs d
profile - r abs r
prolog - r s r
propagate - o bs r
pty - o s r
qos q r abs s
quiet Q n abs r
quit-on-interrupt - n s r
reboot - n abs x
relative r r s d
requeue - o b r
reservation - r abs s
resources - r abs x 25.11
resv-ports - o abs r
segment - r abs d 24.05
send-libs - o s r 21.08
signal - r abs r
slurmd-debug - r s r
sockets-per-node - r abs d
spread-job - n abs d
spread-segments - n abs d 25.11
stepmgr - n abs r 24.05
switches - r abs d
task-epilog - r s r
task-prolog - r s r
tasks-per-node - r abs d
test-only - n bs r
thread-spec - r abs d
threads T r s d
threads-per-core - r abs d
time t r abs d
time-min - r abs d
tmp - r abs d
treewidth - r s r 23.11
tres-bind - r abs d 23.11
tres-per-task - r abs d 23.02
uid - r a x - 24.11
uid - r b x
unbuffered u n s r
usage - n abs r
use-min-nodes - n abs d
verbose v n abs r
version V n abs r
wait W r s r
wait W n b r
wait-all-nodes - r ab r
wait-for-children - n s r 25.05
wckey - r abs x
whole - n s d
wrap - r b r
x11 - o as r
"""


def _read_option_row(table_row: str) -> SlurmOption:
    columns = table_row.split()
    since_version = parse_version(columns[5]) if len(columns) > 5 and columns[5] != "-" else (0, 0)
    until_version = parse_version(columns[6]) if len(columns) > 6 else (99, 0)
    return SlurmOption(
        columns[0],
        "" if columns[1] == "-" else columns[1],
        columns[2],
        columns[3],
        _ABOUT_BY_LETTER[columns[4]],
        since_version,
        until_version,
    )


OPTIONS: tuple[SlurmOption, ...] = tuple(
    _read_option_row(row) for row in _OPTION_TABLE.strip().splitlines()
)


def known(command: str) -> dict[str, SlurmOption]:
    """The long options of one command, of all versions."""
    letter = COMMANDS[command]
    return {option.name: option for option in OPTIONS if letter in option.commands}
