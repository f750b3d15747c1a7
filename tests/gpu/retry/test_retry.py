"""`podwright slurm retry` with stand-ins of Slurm's commands: what runs, what Slurm is told."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from podwright.cli.podwright import main
from podwright.errors import InvalidRequest
from tests.outer.lab import poll

HEALTHY = '{"judgement": {"says": "yes", "because": "no fault", "source": "the driver"}}'
TAB = "\t"
SICK = '{"judgement": {"says": "no", "because": "GPU 3 needs a reset", "source": "the driver"}}'


class Site:
    """A node n1 of job 7, and Slurm's commands, whose calls are in the file `calls`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = {
            "PATH": f"{folder}/bin:{os.environ['PATH']}",
            "SLURM_JOB_ID": "7",
            "SLURM_JOB_NODELIST": "n1",
            "SLURM_JOB_PARTITION": "gpu",
            "SLURM_SUBMIT_DIR": str(folder),
        }
        (folder / "bin").mkdir()
        self.tool("sinfo", "echo 'n1|gpu|allocated|1|none'; echo 'n2|gpu|idle|1|none'")
        self.health(HEALTHY)
        self.excluded, self.restarts, self.expedited = "", 1, False
        self.squeue()

    def tool(self, name: str, script: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\necho {name} >> {self.folder}/calls\n{script}\n")
        path.chmod(0o755)

    def health(self, tree: str) -> None:
        self.answers = f"printf %s {shlex.quote(f'0: n1{TAB}{tree}{TAB}')}"
        self.tool("srun", self.answers)

    def squeue(self) -> None:
        self.tool("squeue", f"echo {self.restarts}")
        shown = f"JobId=7 JobName=train NodeList=n1 ExcNodeList={self.excluded or '(null)'}"
        shown += " ExpeditedRequeue=Yes" * self.expedited
        self.tool(
            "scontrol",
            f'[ "$#" = 0 ] || {{ echo "{shown}"; exit; }}\n'
            f"cat > {self.folder}/said; cat {self.folder}/said >> {self.folder}/told\n"
            f"! grep -q ^requeue {self.folder}/said || kill -KILL $PPID",
        )

    def popen(self, *command: str, **environ: str) -> subprocess.Popen[str]:
        with (self.folder / "out").open("a") as out:
            return subprocess.Popen(
                [sys.executable, "-m", "podwright.cli.podwright", "slurm", "retry", "--", *command],
                env={**self.environ, **environ},
                stdout=out,
                stderr=out,
                text=True,
            )

    def run(self, *command: str, **environ: str) -> int:
        return self.popen(*command, **environ).wait()

    def read(self, name: str) -> str:
        path = self.folder / name
        return path.read_text() if path.exists() else ""

    def history(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.read("slurm-7.retry.jsonl").splitlines()]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_a_command_that_succeeds_asks_slurm_nothing(site: Site) -> None:
    assert site.run("sh", "-c", "echo hello; echo problem >&2") == 0
    assert site.read("out") == "hello\nproblem\n"
    assert (site.read("calls"), site.history()) == ("", [])


def test_a_sick_node_is_left_out_of_the_next_start(site: Site) -> None:
    site.health(SICK)
    site.excluded = "n8"
    site.squeue()
    assert site.run("sh", "-c", "exit 3") == -signal.SIGKILL
    assert (
        site.read("told")
        == "update JobId=7 Requeue=1\nrequeue 7\nupdate JobId=7 ExcNodeList=n8,n1\n"
    )
    (attempt,) = site.history()
    assert (attempt["code"], attempt["cause"], attempt["bad_nodes"]) == (3, "hardware", ["n1"])
    assert attempt["because"] == "n1: GPU 3 needs a reset"


def test_the_last_nodes_are_kept_where_the_cause_is_not_known(site: Site) -> None:
    """Without its own node and those that are excluded already, the job could never start."""
    site.run("false")
    assert site.read("told").endswith("ExcNodeList=n1\n")
    site.excluded = "n2"
    site.squeue()
    site.run("false")
    assert site.read("told").endswith("ExcNodeList=n2\n")


def test_a_task_of_an_array_requeues_itself_alone(site: Site) -> None:
    site.health(SICK)
    site.run("false", SLURM_ARRAY_JOB_ID="5", SLURM_ARRAY_TASK_ID="2")
    told = "update JobId=5_2 Requeue=1\nrequeue 5_2\nupdate JobId=5_2 ExcNodeList=n1\n"
    assert site.read("told") == told


def test_a_program_that_fails_is_not_started_again(site: Site) -> None:
    assert site.run(sys.executable, "-c", "undefined") == 1
    assert site.read("told") == ""
    (attempt,) = site.history()
    assert (attempt["cause"], attempt["step"]) == ("program", "stop")
    assert attempt["because"] == "NameError: name 'undefined' is not defined"


def test_words_of_an_earlier_command_of_the_script_do_not_count(site: Site) -> None:
    (site.folder / "out").write_text("NameError: name 'x' is not defined\n")
    site.run("false")
    assert [attempt["cause"] for attempt in site.history()] == ["not known"]


def test_where_slurm_refuses_the_commands_code_remains(site: Site) -> None:
    site.restarts = 0
    site.squeue()
    site.tool(
        "scontrol", "cat >/dev/null; echo 'Requested operation is presently disabled'; exit 1"
    )
    assert site.run("sh", "-c", "exit 3") == 3
    out = site.read("out")
    assert "Slurm says: Requested operation is presently disabled." in out
    assert "the job is not started again." in out


def test_a_bad_node_that_comes_again_runs_nothing(site: Site) -> None:
    site.health(SICK)
    site.run("false")
    site.restarts = 2
    site.squeue()
    site.run("sh", "-c", "echo started", SLURM_RESTART_COUNT="1")
    assert "started\n" not in site.read("out")
    assert [attempt["code"] for attempt in site.history()] == [1, None]
    assert site.read("told").count("requeue 7\n") == 2


@pytest.mark.parametrize("expedited", [False, True])
def test_beyond_the_limit_the_command_is_not_started(site: Site, *, expedited: bool) -> None:
    site.expedited = expedited
    site.squeue()
    assert site.run("sh", "-c", "echo started", SLURM_RESTART_COUNT="4") == 75
    assert "started\n" not in site.read("out")
    assert site.read("told") == "update JobId=7 Requeue=0\n" * expedited
    (attempt,) = site.history()
    assert attempt["because"] == "Slurm has started this job 5 times, and --max is 3"
    assert attempt["code"] is None


def test_the_last_attempt_ends_with_the_commands_code(site: Site) -> None:
    assert site.run("false", SLURM_RESTART_COUNT="3") == 1
    assert site.read("told") == ""


def test_a_first_start_forgets_an_older_job_of_its_number(site: Site) -> None:
    site.health(SICK)
    site.run("false")
    site.health(HEALTHY)
    site.run("false")
    assert [attempt["cause"] for attempt in site.history()] == ["not known"]


def test_signals_reach_the_command_and_a_job_that_slurm_ends_stays_ended(site: Site) -> None:
    site.health(SICK)
    script = f"trap 'echo got >> {site.folder}/got; exit 9' TERM; : > {site.folder}/up; "
    process = site.popen("sh", "-c", script + "while :; do sleep 0.1; done")
    poll("its start", (site.folder / "up").exists)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 9
    assert (site.read("got"), site.read("told")) == ("got\n", "")
    (attempt,) = site.history()
    assert (attempt["step"], attempt["because"]) == ("stop", "Slurm asked the job to end")
    assert "srun" not in site.read("calls")


def test_a_job_that_is_cancelled_while_its_nodes_are_asked_stays_ended(site: Site) -> None:
    site.health(SICK)
    site.tool("srun", f"kill -TERM $PPID; {site.answers}")
    assert site.run("false") == 1
    assert site.read("told") == ""
    assert [attempt["step"] for attempt in site.history()] == ["stop"]


def test_a_signal_that_ends_the_command_is_shown_as_a_shell_shows_it(site: Site) -> None:
    site.restarts = 0
    site.squeue()
    site.tool("scontrol", "exit 1")
    assert site.run("sh", "-c", "kill -SEGV $$") == 139


def test_a_command_that_is_not_there_ends_with_127(site: Site) -> None:
    assert site.run("no-such-program") == 127
    assert site.read("told") == ""


def test_the_first_failure_that_poprun_recorded_decides(site: Site) -> None:
    """Records of an earlier launch do not count, and neither does what came after the first."""
    line = '{"host": "n1", "time": 5, "code": 1, "first": true, "message": "%s"}\n'
    (site.folder / "failures.jsonl").write_text(line % "RuntimeError: CUDA error")
    record = shlex.quote(line % "NameError: name 'x' is not defined")
    script = f"printf %s {record} >> {site.folder}/failures.jsonl; echo NCCL timeout; exit 1"
    assert site.run("sh", "-c", f"{script} # --log-dir={site.folder} ") == 1
    (attempt,) = site.history()
    assert (attempt["cause"], attempt["source"]) == ("program", "failures.jsonl of poprun")


def torch_record(at: float) -> str:
    """What torch's @record writes of a NameError."""
    details = {"py_callstack": "", "timestamp": str(int(at))}
    return json.dumps({"message": {"message": "NameError: x", "extraInfo": details}})


def run_the_probe(site: Site) -> None:
    """srun runs what it is to run, on this node."""
    site.tool(
        "srun",
        f"for word; do :; done; PATH={site.folder}/bin:$PATH; export SLURMD_NODENAME=n1\n"
        'printf \'0: %s\\n\' "$(sh -c "$word")"',
    )


def test_the_error_file_that_torch_writes_decides(site: Site) -> None:
    run_the_probe(site)
    torch = f"printf %s {shlex.quote(torch_record(7))} > $TORCHELASTIC_ERROR_FILE"
    assert site.run("sh", "-c", f"{torch}; echo NCCL timeout; exit 1") == 1
    (attempt,) = site.history()
    assert (attempt["cause"], attempt["because"]) == ("program", "NameError: x")
    assert attempt["source"] == "the error file of torch elastic on n1"


@pytest.mark.parametrize(("age", "cause"), [(3600, "not known"), (-5, "program")])
def test_an_error_file_that_is_older_than_the_command_decides_nothing(
    site: Site, age: float, cause: str
) -> None:
    """Its user named it, and an earlier job may have written it."""
    run_the_probe(site)
    mine = site.folder / "mine.json"
    mine.write_text(torch_record(time.time() - age))
    site.run("sh", "-c", "echo NCCL timeout; exit 1", TORCHELASTIC_ERROR_FILE=str(mine))
    assert [attempt["cause"] for attempt in site.history()] == [cause]
    assert mine.exists()


def test_a_program_that_fails_ends_a_job_that_slurm_would_hold(site: Site) -> None:
    """Slurm keeps a job of --requeue=expedite in the queue, whatever its script ends with."""
    site.expedited = True
    site.squeue()
    assert site.run(sys.executable, "-c", "undefined") == 1
    assert site.read("told") == "update JobId=7 Requeue=0\n"


def test_a_job_that_slurm_preempts_may_be_requeued_once_more(site: Site) -> None:
    site.expedited = True
    site.squeue()
    process = site.popen("sh", "-c", f": > {site.folder}/up; exec sleep 100")
    poll("its start", (site.folder / "up").exists)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 128 + signal.SIGTERM
    assert site.read("told") == ""


def test_the_history_is_shown(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.health(SICK)
    site.run("false")
    assert main(["slurm", "retry", "--history", "7", "--folder", str(site.folder)]) == 0
    assert "n1: GPU 3 needs a reset" in capsys.readouterr().out
    assert main(["slurm", "retry", "--history", "7", "--folder", str(site.folder), "--json"]) == 0
    (attempt,) = json.loads(capsys.readouterr().out)
    assert (attempt["cause"], attempt["without"]) == ("hardware", ["n1"])


def test_no_job_and_no_readable_history_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    from podwright.gpu.retry import read_history, retry

    with pytest.raises(InvalidRequest, match="no batch job"):
        retry(["true"], 3, {})
    with pytest.raises(InvalidRequest, match="No such file"):
        read_history(tmp_path / "none")
    (tmp_path / "broken").write_text("{")
    with pytest.raises(InvalidRequest, match="broken"):
        read_history(tmp_path / "broken")
