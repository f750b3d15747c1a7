"""Limits of accounts and QOS, and AllowGroups: a twin refuses and holds what the cluster does."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from podwright.slurm.twin import (
    Granted,
    Refused,
    Submission,
    Twin,
    Waits,
    allowed_groups,
    present_copied,
    read_names,
)
from tests.outer.gpu.truth import GRES_CONF, NODE, make_gpus
from tests.outer.lab import ALICE, BOB, LabError, poll, release, written_at
from tests.outer.lab._accounts import Accounts
from tests.outer.twin.test_ask import installed
from tests.outer.twin.test_present import site_files

pytestmark = [pytest.mark.twin, pytest.mark.outer, pytest.mark.slurm]

#: Who submits, with which options.
REQUESTS = (
    (ALICE, "--gpus=1"),
    (ALICE, "--gpus=2"),  # GrpTRES of the account lets two GPUs run, and one is in use
    (ALICE, "--gpus=1 --account=nobody"),
    (ALICE, "--gpus=1 --qos=short --time=5"),
    (ALICE, "--gpus=1 --qos=short --time=60"),
    (ALICE, "--gpus=1 --partition=closed"),
    (BOB, "--gpus=1 --partition=closed"),
    (BOB, "--gpus=1 --qos=short"),
    (BOB, "--gpus=1"),
)


class AccountsLab(Accounts):
    """Four nodes with GPUs, limits of accounts, and a partition for one group."""

    def __init__(self, name: str) -> None:
        super().__init__(
            nodes=4,
            cpus=8,
            conf={
                **self.accounts_conf(),
                "GresTypes": "gpu",
                "AccountingStorageTRES": "gres/gpu",
                "AccountingStorageEnforce": "limits,qos",
            },
            lines=[
                "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP",
                f"PartitionName=closed Nodes=n[1-2] AllowGroups={BOB} MaxTime=INFINITE State=UP",
            ],
            files={"gres.conf": GRES_CONF},
            node_extra=NODE,
            release=release(name),
        )
        make_gpus(self, 4)

    def start(self) -> None:
        self._start_munged()
        self.start_accounts()
        self.account("add", "qos", "short", "set", "MaxWall=10", "Flags=DenyOnLimit")
        self.account("modify", "user", ALICE, "set", "qos+=short")
        self.start_daemon("slurmctld", clean=True)
        for node in self.nodes:
            self.start_daemon(node)
        self.wait_for_nodes()
        # slurmctld makes the TRES known that the limit is about.
        self.account("modify", "account", "science", "set", "GrpTRES=gres/gpu=2")


@pytest.fixture(scope="module", params=["oldest", "newest"])
def lab(request: pytest.FixtureRequest) -> Iterator[AccountsLab]:
    with AccountsLab(request.param) as started:
        yield started


def verdict(lab: AccountsLab, user: str, options: str) -> str:
    """What the cluster does: its error, its reason to wait, or that the job starts."""
    script = lab.write("job.sh", "#!/bin/sh\nsleep 1000\n")
    words = (*options.split(), "--output=/dev/null", str(script))
    try:
        job = lab.ok("sbatch", "--parsable", *words, user=user).strip()
    except LabError as error:
        return str(error).splitlines()[-1].rpartition(": ")[2]

    def decided() -> str:
        record = lab.ok("scontrol", "--oneliner", "show", "job", job)
        if "JobState=RUNNING" in record:
            return "starts"
        match = re.search(r"JobState=PENDING Reason=(?!None|Priority)(\S+)", record)
        return match[1] if match else ""

    decision = poll(f"a decision about {options}", decided)
    lab.ok("scancel", job)
    poll("free nodes", lambda: "COMPLETING" not in lab.ok("scontrol", "show", "node"))
    return decision


def words(answer: Granted | Waits | Refused) -> str:
    if isinstance(answer, Refused):
        return answer.message.rpartition(": ")[2]
    return answer.reason if isinstance(answer, Waits) else "starts"


def test_the_limits_of_accounts_and_groups_are_slurms(lab: AccountsLab) -> None:
    import pwd

    script = lab.write("held.sh", "#!/bin/sh\nsleep 1000\n")
    lab.ok("sbatch", "--gpus=1", "--output=/dev/null", str(script), user=ALICE)
    poll("it", lambda: "RUNNING" in lab.ok("squeue", "-h", "-o", "%T"))
    changed = time.time()
    state = lab.folder / "state"
    lab.ok("scontrol", "reconfigure")  # writes what slurmctld else writes every five minutes
    for file in ("job_state", "assoc_mgr_state"):
        poll(file, lambda file=file: written_at(state / file) >= changed - 1)  # type: ignore[misc]
    site = site_files(lab)

    def ask(argv: list[str]) -> str:
        return lab.ok(*argv)

    names = read_names(ask, allowed_groups(site))
    assert names.users[ALICE] == pwd.getpwnam(ALICE).pw_uid
    assert BOB in names.groups[BOB]
    present = present_copied(state)
    with Twin(replace(site, names=names), installed(lab.release), present) as twin:
        assert twin.knows_accounts
        assert twin.knows_groups
        answers = {
            (user, options): words(
                twin.ask(
                    Submission("sbatch", tuple(options.split())),
                    as_uid=pwd.getpwnam(user).pw_uid,
                )
            )
            for user, options in REQUESTS
        }
    expected = {(user, options): verdict(lab, user, options) for user, options in REQUESTS}
    assert answers == expected
    assert "starts" in answers.values()
    assert "AssocGrpGRES" in answers.values()


def test_without_names_neither_is_looked_at(lab: AccountsLab) -> None:
    site = site_files(lab)
    with Twin(site, installed(lab.release), present_copied(lab.folder / "state")) as twin:
        assert not twin.knows_accounts
        assert not twin.knows_groups
        answer = twin.ask(Submission("sbatch", ("--gpus=1", "--partition=closed")), as_uid=4242)
        assert isinstance(answer, Granted)
