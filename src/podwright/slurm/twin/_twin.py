"""A private copy of a site's slurmctld, unmodified, which is asked what it would do.

slurmctld starts twice. The first start (`-c`) makes the state of the nodes. After SIGTERM the state
folder is copied, and the second start finds plain idle nodes with gres.conf loaded. The twin
returns to that copy: a job that was granted leaves nodes that never answer, so after such an answer
slurmctld starts again from the copy. With a state that was copied from the site it does so after
every answer.
"""

from __future__ import annotations

import base64
import os
import re
import shlex
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType

from podwright.errors import Unavailable, WrongState
from podwright.slurm.site.command_result import CommandResult
from podwright.slurm.twin._read_twin_answer import read_job_answer, refused
from podwright.slurm.twin._step_runner import StepRunner, UncertainStep
from podwright.slurm.twin._twin_conf import twin_conf
from podwright.slurm.twin._twin_gres_conf import with_twin_devices
from podwright.slurm.twin._twin_process_client import (
    CONTROLLER_USER,
    SLURM_UID,
    CellUser,
    TwinCell,
    open_cell,
)
from podwright.slurm.twin._twin_types import (
    FilledTwin,
    Granted,
    InstalledSlurm,
    Present,
    Refused,
    SiteFiles,
    SiteNames,
    Submission,
    Task,
    Waits,
)
from podwright.slurm.twin._twin_users import account_of, user_files

_START_LIMIT_S = 120.0  # seconds
_ANSWER_LIMIT_S = 30.0
_REUSE_LIMIT_S = 60.0  # below MessageTimeout of the twin's slurm.conf
_SECOND_LOOK_S = 8.0  # for reasons that the backfill scheduler may still change
_TWO_ROUNDS_S = 11.0  # of the scheduler of the twin's slurm.conf
_COVERED_FILES = {
    "etc/passwd": "/etc/passwd",
    "etc/group": "/etc/group",
    "etc/hosts": "/etc/hosts",
    "etc/nsswitch.conf": "/etc/nsswitch.conf",
}


class Twin:
    """A running twin, as a context manager.

    Raises Unavailable where no twin can be started, and InvalidRequest for files that describe no
    site. Nothing of a twin is left behind, whatever is killed.
    """

    def __init__(
        self,
        site: SiteFiles,
        slurm: InstalledSlurm,
        present: Present | None = None,
        *,
        cell: TwinCell | None = None,
    ) -> None:
        self._slurm = slurm
        self._present = present
        self._names = site.names or SiteNames()
        self._conf = twin_conf(site, slurm.version, accounts=bool(present and present.accounts))
        self._cell: TwinCell = cell or open_cell(slurm.root)
        twin_place = self._cell.place
        if twin_place.munge:  # the users and groups of this machine hold, not those of the site
            self._conf = twin_conf(replace(site, names=None), slurm.version, place=twin_place)
        self._ready = False  # slurmctld runs, and has had no request since its start
        self._last_job = 0
        self._started = 0.0
        self._environment = {
            "PATH": f"{slurm.sbin}:{slurm.bin}:/usr/sbin:/usr/bin:/sbin:/bin",
            "SLURM_CONF": f"{twin_place.folder}/etc/slurm.conf",
            "HOME": "/",
            "LC_ALL": "C",
            **({"TZ": os.environ["TZ"]} if os.environ.get("TZ") else {}),
        }

    def __enter__(self) -> Twin:
        try:
            self._prepare_cell()
        except BaseException:
            self._cell.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the twin."""
        self._cell.close()

    def ask(
        self, request: Submission, *, as_uid: int | None = None, estimate: bool = False
    ) -> Granted | Waits | Refused:
        """Return what slurmctld does with the request.

        as_uid: the user who makes the request; by default the caller, or, for root, a user without
        rights. estimate: for a job that waits, also wait for the time at which Slurm expects to
        start it.

        Raises Unavailable where slurmctld ends, or does not decide within half a minute.
        """
        self._restore_clean_state()
        self._ready = False
        account = account_of(as_uid)
        if request.command == "sbatch":
            job_id, messages = self._submit(request, account)
        else:
            job_id, messages = self._request_allocation(request, account)
        answer: Granted | Waits | Refused
        if job_id:
            self._last_job = max(self._last_job, int(job_id))
            answer = self._wait_for_decision(job_id, messages, request, estimate=estimate)
        else:
            answer = refused(messages)
        if request.command != "sbatch":
            answer = self._end_allocation(answer)
        if isinstance(answer, Refused):
            self._ready = self._cell.alive("slurmctld")
            if not self._ready and not job_id:
                raise Unavailable(f"slurmctld ended at this request: {self._last_log_lines()}")
        else:
            self._ready = self._undo_job(job_id, answer)
        return answer

    def tasks(self, request: Submission, granted: Granted | None = None) -> tuple[Task, ...]:
        """Return what each task of a plain srun in the job gets from the slurmd of its node.

        For `srun` these are the tasks of its own step. The result is empty where the job does not
        start. granted: what `ask` answered to the same request, if known.

        Raises WrongState, with srun's own line, where the job starts and its step does not, and
        Unavailable where slurmd does not start here.
        """
        granted_answer = granted or self.ask(request, as_uid=SLURM_UID)
        if not isinstance(granted_answer, Granted):
            return ()
        # On a busy machine a step was seen to end without a reason, or on fewer nodes than were
        # granted. A likely cause, not proven, is that slurmctld handles a registration that a
        # slurmd sent before the job started only after that, and ends the job as one that the
        # node does not know. A decision of Slurm is the same in a second run.
        try:
            return self._run_step(request, granted_answer)
        except UncertainStep:
            pass
        try:
            return self._run_step(request, granted_answer)
        except UncertainStep as second_failure:
            if isinstance(second_failure.result, WrongState):
                raise second_failure.result from None
            return second_failure.result

    def _run_step(self, submission: Submission, granted: Granted) -> tuple[Task, ...]:
        self._restore_clean_state()
        self._ready = False
        runner = StepRunner(self._cell, self._slurm, self._conf, self._environment)
        try:
            runner.start([node.name for node in granted.nodes])
            return runner.run(submission, granted)
        finally:
            runner.end()

    def fill(self, requests: Sequence[Submission], *, limit: float = 120) -> FilledTwin:
        """Submit all requests at once, and return what runs when nothing more starts.

        The next question finds the state before them. limit: seconds. Raises Unavailable where
        slurmctld ends.
        """
        self._restore_clean_state()
        self._ready = False
        account = account_of(None)
        refusals = []
        for request in requests:
            job_id, messages = self._submit(request, account)
            if not job_id:
                refusals.append(refused(messages))
        deadline = time.monotonic() + limit
        changed_at, last_states = time.monotonic(), ""
        while True:
            job_states = self._run_as(["squeue", "-h", "-r", "-o", "%T"]).out
            now = time.monotonic()
            if job_states != last_states:
                changed_at, last_states = now, job_states
            # If the scheduler starts nothing in two of its rounds, it starts nothing more.
            if "PENDING" not in job_states or now > min(deadline, changed_at + _TWO_ROUNDS_S):
                break
            if not self._cell.alive("slurmctld"):
                raise Unavailable(f"slurmctld ended: {self._last_log_lines()}")
            time.sleep(0.3)
        job_records = self._run_as(["scontrol", "--oneliner", "--details", "show", "job"]).out
        answers = [
            read_job_answer(record)
            for record in job_records.splitlines()
            if record.startswith("JobId=")
        ]
        return FilledTwin(
            granted=tuple(answer for answer in answers if isinstance(answer, Granted)),
            waiting=tuple(answer for answer in answers if isinstance(answer, Waits)),
            refused=tuple(refusals),
        )

    @property
    def knows_accounts(self) -> bool:
        """Whether the limits of associations and QOS apply."""
        return self._conf.accounts

    @property
    def knows_groups(self) -> bool:
        """Whether AllowGroups of partitions applies, where there is any."""
        return self._conf.groups

    def renew(self, present: Present) -> None:
        """Start from a newer copy of the same cluster's state. Raises Unavailable."""
        self._present = present
        self._cell.remove("state.clean")
        self._write_state("state.clean", present)
        self._ready = False
        self._restore_clean_state()

    def refresh(self) -> None:
        """Make the twin ready for the next request. Raises Unavailable."""
        self._restore_clean_state()

    def show(self, *words: str) -> str:
        """Return what `scontrol` prints of the twin, for words such as `show config`."""
        self._restore_clean_state()
        return self._run_as(["scontrol", *words]).out

    def slurmd_reads_gres(self, node_name: str, gres_text: str) -> CommandResult:
        """Return what `slurmd -G` of a node says of gres.conf as it is written, with devices that
        are the twin's."""
        encoded = {
            path: base64.b64encode(text.encode()).decode()
            for path, text in (
                ("check/slurm.conf", self._conf.files["etc/slurm.conf"]),
                ("check/gres.conf", with_twin_devices(gres_text, self._cell.place.folder)),
                ("check/cgroup.conf", self._conf.files["etc/cgroup.conf"]),
            )
        }
        self._cell.write(encoded, {})
        environment = self._environment | {
            "SLURM_CONF": f"{self._cell.place.folder}/check/slurm.conf"
        }
        argv = [f"{self._slurm.sbin}/slurmd", "-G", "-N", node_name]
        return self._cell.run(argv, CONTROLLER_USER, environment, limit=20)

    # Starting

    def _prepare_cell(self) -> None:
        account_files = user_files(account_of(None), self._names)
        self._cell.write(self._conf.encoded() | account_files, self._conf.links)
        for file, path in _COVERED_FILES.items():
            self._cell.cover(file, path)
        self._cell.folder("spool")
        self._cell.folder("state")
        self._cell.listen(sorted(self._conf.nodes.values()))
        if self._present:
            self._write_state("state", self._present)
        else:
            self._spawn_slurmctld("-c")
            self._wait_for_slurmctld()
            for index in range(0, len(self._conf.unused), 200):
                node_names = ",".join(self._conf.unused[index : index + 200])
                self._run_as(
                    ["scontrol", "update", f"NodeName={node_names}", "State=DRAIN", "Reason=site"]
                )
            self._cell.stop("slurmctld", signal.SIGTERM, 30)
        self._cell.copy("state", "state.clean")
        self._spawn_slurmctld()
        self._ready = True
        self._wait_for_slurmctld()

    def _write_state(self, state_folder: str, present: Present) -> None:
        files = {
            f"{state_folder}/{name}": base64.b64encode(content).decode()
            for name, content in present.state.items()
            if name != "clustername" or self._conf.accounts  # else the twin's name is its own
        }
        self._cell.write(files, {})

    def _spawn_slurmctld(self, *slurmctld_options: str) -> None:
        self._started = time.monotonic()
        argv = [f"{self._slurm.sbin}/slurmctld", "-D", *slurmctld_options]
        self._cell.daemon("slurmctld", argv, CONTROLLER_USER, self._environment)

    def _wait_for_slurmctld(self) -> None:
        """Wait until slurmctld answers. Raises Unavailable."""
        deadline = time.monotonic() + _START_LIMIT_S
        while self._run_as(["sinfo", "-h", "-o", "%D"]).code != 0:
            if not self._cell.alive("slurmctld"):
                raise Unavailable(
                    f"slurmctld does not start with this site's files: {self._last_log_lines()}"
                )
            if time.monotonic() > deadline:
                raise Unavailable(f"slurmctld does not answer: {self._last_log_lines()}")
            time.sleep(0.03)
        self._cell.check_private()

    def _restore_clean_state(self) -> None:
        """Make slurmctld as it was before any request."""
        is_alive = self._cell.alive("slurmctld")
        if self._ready and is_alive and time.monotonic() < self._started + _REUSE_LIMIT_S:
            return
        if is_alive:
            self._cell.stop("slurmctld", signal.SIGKILL, 5)
        self._cell.listen(sorted(self._conf.nodes.values()))
        self._cell.copy("state.clean", "state")
        self._last_job = 0
        self._spawn_slurmctld()
        self._wait_for_slurmctld()
        self._ready = True

    def _undo_job(self, job_id: str, answer: Granted | Waits) -> bool:
        """Take a job back, so that the next request finds the state before it.

        Returns whether that succeeded; otherwise slurmctld starts again. No slurmd runs that could
        report the end of a job on a node, so the job's nodes are set down and up again. That ends
        every job on them, so it is done only where the twin has no present jobs. Slurm finds nodes
        silent after MessageTimeout, so it is done only in the first _REUSE_LIMIT_S seconds.
        """
        if self._present or time.monotonic() > self._started + _REUSE_LIMIT_S:
            return False
        scancel_result = self._run_as(["scancel", job_id])
        if isinstance(answer, Waits):
            return scancel_result.code == 0
        node_names = ",".join(node.name for node in answer.nodes)
        for node_state in ("State=DOWN", "State=IDLE"):
            update_command = [
                "scontrol",
                "update",
                f"NodeName={node_names}",
                node_state,
                "Reason=twin",
            ]
            if self._run_as(update_command).code != 0:
                return False
        return True

    def _last_log_lines(self) -> str:
        log_lines = self._cell.read("log/slurmctld").splitlines()
        error_lines = [line for line in log_lines if re.search(r"fatal|error", line)]
        last_lines = (error_lines or log_lines or ["no reason given"])[-3:]
        return "; ".join(re.sub(r"^(?:\[\S+\] )?(?:slurmctld: )?", "", line) for line in last_lines)

    # Asking

    def _run_as(
        self, argv: list[str], account: CellUser = CONTROLLER_USER, stdin: str = ""
    ) -> CommandResult:
        return self._cell.run(argv, account, self._environment, stdin)

    def _submit(self, submission: Submission, account: CellUser) -> tuple[str, str]:
        """Run sbatch. Return the number of the job, or "" if it is refused, and what sbatch
        printed.
        """
        self._cell.write(user_files(account, self._names), {})
        argv = ["sbatch", "--parsable", "--output=/dev/null", *submission.options]
        sbatch_result = self._run_as(argv, account, submission.script)
        job_id = sbatch_result.out.strip().partition(";")[0]
        return (
            job_id if sbatch_result.code == 0 and job_id.isdecimal() else ""
        ), sbatch_result.err.strip()

    def _request_allocation(self, submission: Submission, account: CellUser) -> tuple[str, str]:
        """Do the same with salloc or srun, which stay until their job starts or is refused."""
        self._cell.write(user_files(account, self._names), {})
        argv = ["salloc", "--no-shell", *submission.options]
        if submission.command == "srun":
            argv = ["srun", *submission.options, "true"]
        self._cell.daemon("allocation", argv, account, self._environment)
        deadline = time.monotonic() + _ANSWER_LIMIT_S
        while time.monotonic() < deadline:
            is_alive = self._cell.alive("allocation")
            jobs_listing = self._run_as(["scontrol", "--oneliner", "show", "job"]).out
            job_ids = [int(number) for number in re.findall(r"^JobId=(\d+)", jobs_listing, re.M)]
            if job_ids and max(job_ids) > self._last_job:
                return str(max(job_ids)), self._cell.read("log/allocation")
            if not is_alive:
                break
            time.sleep(0.02)
        return "", self._cell.read("log/allocation").strip()

    def _end_allocation(self, answer: Granted | Waits | Refused) -> Granted | Waits | Refused:
        """End salloc or srun, and return the complete answer.

        A refusal is complete when the command has ended by itself: it prints the reason after
        slurmctld has stored the job as failed.
        """
        deadline = time.monotonic() + 5
        if isinstance(answer, Refused):
            while self._cell.alive("allocation") and time.monotonic() < deadline:
                time.sleep(0.01)
            answer = refused(self._cell.read("log/allocation") or answer.messages)
        self._cell.stop("allocation", signal.SIGKILL, 5)
        return answer

    def _wait_for_decision(
        self, job_id: str, messages: str, submission: Submission, *, estimate: bool
    ) -> Granted | Waits | Refused:
        options_text = shlex.join(submission.options)
        needs_backfill = bool(re.search(r"(?:--partition=|-p ?)\S*,|--prefer", options_text))
        deadline = time.monotonic() + _ANSWER_LIMIT_S
        waiting_since = 0.0
        while time.monotonic() < deadline:
            argv = ["scontrol", "--oneliner", "--details", "show", "job", job_id]
            job_record = self._run_as(argv).out
            answer = read_job_answer(job_record, messages)
            if isinstance(answer, Granted | Refused):
                return answer
            if isinstance(answer, Waits):
                waiting_since = waiting_since or time.monotonic()
                # The backfill scheduler looks once more at jobs with the reason Priority, and at
                # jobs with several partitions.
                is_settled = answer.reason != "Priority" and (
                    not needs_backfill or "Scheduler=Backfill" in job_record
                )
                is_settled = is_settled and not (estimate and "StartTime=Unknown" in job_record)
                if is_settled or time.monotonic() > waiting_since + _SECOND_LOOK_S:
                    return answer
            if not self._cell.alive("slurmctld"):
                raise Unavailable(f"slurmctld ended at this request: {self._last_log_lines()}")
            time.sleep(0.01)
        raise Unavailable("slurmctld did not decide about this request")
