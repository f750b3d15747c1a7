"""Times, sizes and arrays: lint calls wrong what real sbatch and slurmctld refuse, and no more."""

from __future__ import annotations

import pytest

from podwright.gpu.lint import lint, read_script
from tests.outer.gpu.truth import gpu_lab
from tests.outer.lab import release

pytestmark = [pytest.mark.outer, pytest.mark.slurm]

VALUES = {
    "time": (
        "5 60:00 1:00:00 1-0 1-12:30 1-12:30:15 UNLIMITED infinite -1 0 24h 2days 1:00:00:00 1-2-3 "
        "1- :30 1:2:3:4 1.5 1:00h 90m 240s 1d 00:00:00 ten 1-1:1:1:1"
    ),
    "mem": "16 16G 16g 16GB 16gb 0 512M 1T 16K 16GiB 1.5G 16X G 16GG -5 all 16G,2",
    "array": (
        "1-10 0 1,3,5 0-9:2 1-10%3 1,2-4:2,7%3 [0-4]%2 1-10% 1-10%0 1-3,%2 1-3%2,5 1..10 1- 10-1 "
        "1:10 a-b -3 1-5-7 0-9:0 1;5 1-4x"
    ),
    "ntasks": "1 4 four 4; 4,",
    "mail-type": "ALL all BEGIN,END END,NEVER FINISH NONE TIME_LIMIT_80 ON_FAIL Invalid_Depend",
    "exclusive": "user mcs exclusive oversubscribe yes node true User",
    "gres-flags": "disable-binding enforce-binding Enforce-Binding enforce bind",
    "kill-on-invalid-dep": "yes no YES maybe true",
    "open-mode": "append truncate a T new write",
    "signal": (
        "USR1 SIGUSR1@60 usr1@ B:10@300 R:TERM RB:INT@5 BR:INT@5 10 90@SIGUSR1 SAVE@90 USR1@5m "
        "USR1:60 @60 sigusr2 B:SIGUSR1@120s XCPU@60 0@60 RTMIN"
    ),
    "dependency": (
        "singleton afterok:1 afterany:1:2 after:1+5 afterokk:1 ok:1 1 afterok afterok:1,singleton "
        "afterok:1?afternotok:2 previous after:1,2"
    ),
    "gres": "gpu:1 gpu:a100:1 gpus:1 gpu GPU:1 gpu4 1 none",
}
REFUSALS = ("Invalid", "invalid", "array specification", "fatal", "dependency problem")


@pytest.mark.parametrize("name", ["oldest", "newest"])
def test_values_are_read_as_sbatch_reads_them(name: str) -> None:
    wrong = {}
    with gpu_lab(release(name)) as lab:
        held = [lab.submit("true", "--hold") for _ in range(2)]
        assert held == [1, 2]  # for others to depend on
        for option, values in VALUES.items():
            for value in values.split():
                text = f"#!/bin/sh\n#SBATCH --{option}={value}\ntrue\n"
                done = lab.run("sbatch", "--test-only", stdin=text)
                refused = any(word in done.stderr for word in REFUSALS)
                found = [f.rule for f in lint(read_script(text), better=True)]
                called = found not in ([], ["array-unlimited"])
                if refused != called:
                    wrong[f"{option}={value}"] = done.stderr.strip()
    assert wrong == {}


@pytest.mark.parametrize("name", ["oldest", "newest"])
def test_a_limit_of_an_array_that_is_no_number_is_none(name: str) -> None:
    limits = {"1-9%4": "4", "1-9%": "", "1-9%0": "", "1-9%x": "", "1-9%-1": "", "1-9%3,20%": "3"}
    with gpu_lab(release(name)) as lab:
        for value, limit in limits.items():
            script = f"#!/bin/sh\n#SBATCH --array={value}\ntrue\n"
            job = lab.submit(script, "--hold")
            listed = lab.ok("squeue", "--noheader", "--jobs", str(job), "--format=%K")
            assert listed.partition("%")[2].strip() == limit, value
            found = [f.rule for f in lint(read_script(script), better=True)]
            assert found == ([] if limit else ["array-unlimited"]), value
