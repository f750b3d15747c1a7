"""Hierarchical resources (HRES, 25.05 and newer, beta) as a way to count: what a real Slurm says.

`python -m tests.outer.experiments.hres` (as root). n1 and n2 reach one pod of 64 devices, n3 and n4
another; one resource `dev` with a layer for each, in mode 1.
"""

import sys

from tests.outer.lab import SlurmLab, poll, release

RESOURCES = """\
---
- resource: dev
  mode: MODE_1
  layers:
    - nodes:
        - "n[1-2]"
      count: 64
    - nodes:
        - "n[3-4]"
      count: 64
"""
PROLOG = (
    '#!/bin/sh\necho "$SLURM_JOB_ID $SLURM_JOB_NODELIST $SLURM_JOB_LICENSES" >>@LAB@/out/prolog\n'
)


def main() -> None:
    conf = {"PrologSlurmctld": "@LAB@/prolog"}
    files = {"resources.yaml": RESOURCES, "prolog": PROLOG}
    with SlurmLab(nodes=4, cpus=16, release=release("newest"), conf=conf, files=files) as lab:

        def say(what: str, *argv: str) -> str:
            done = lab.run(*argv)
            text = " | ".join((done.stdout + done.stderr).split("\n")).strip(" |")
            print(f"{what}: exit {done.returncode}: {text}", file=sys.stderr, flush=True)
            return text

        def starts(what: str, *options: str) -> int:
            job = lab.submit("sleep 60", "-o", "/dev/null", *options)
            poll("a look", lambda: lab.job(job).reason != "None" or lab.job(job).state != "PENDING")
            now = lab.job(job)
            print(
                f"{what}: {now.state} {now.reason} on {now.fields.get('NodeList')}", file=sys.stderr
            )
            return job

        say("licences", "scontrol", "-o", "show", "lic")
        starts("48 anywhere", "-n1", "-L", "dev:48")
        starts("48 more go to the other pod", "-n1", "-L", "dev:48")
        third = starts("a third 48 waits", "-n1", "-L", "dev:48")
        starts("8 on n3", "-n1", "-L", "dev:8", "-w", "n3")
        say("two nodes of two pods", "sbatch", "-N2", "-w", "n2,n3", "-L", "dev:4", "--wrap=true")
        name = "reservationname=counts"
        time = ("starttime=now", "duration=UNLIMITED", "users=root")
        say("hide 8 of one", "scontrol", "create", "reservation", name, "flags=LICENSE_ONLY", *time,
            "licenses=dev(n[1-2]):8")  # fmt: skip
        say("change it", "scontrol", "update", name, "licenses=dev(n[1-2]):16,dev(n[3-4]):4")
        say("hide more than is free", "scontrol", "update", name, "licenses=dev(n[1-2]):60")
        say("licences", "scontrol", "-o", "show", "lic")
        say("a job's own", "scontrol", "update", f"jobid={third}", "licenses=dev:4")
        say("prolog saw", "cat", f"{lab.folder}/out/prolog")


if __name__ == "__main__":
    main()
