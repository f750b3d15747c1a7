"""How an answer of Slurm itself becomes the value that is shown, and what is submitted."""

from __future__ import annotations

from dataclasses import replace
from types import TracebackType

import pytest

from podwright.errors import Unavailable, WrongState
from podwright.gpu import requests
from podwright.gpu.requests import Grant, SlurmRefusal, SlurmRequest
from podwright.gpu.requests import _ask_twin as asked
from podwright.slurm.twin import (
    Granted,
    GrantedNode,
    InstalledSlurm,
    Refused,
    Submission,
    Task,
    Waits,
)
from podwright.slurm.twin_service import TwinAnswer, TwinQuestion
from tests.slurm.twin.recorded import read_texts

TEXTS = read_texts("26.05.5", "1")
GRANTED = Granted((GrantedNode("n4", (0, 1), 400, (2, 3), {}),), "main", "JobId=1")


class PlayedTwin:
    """In place of a twin: one answer, and the tasks or why there are none."""

    answer: Granted | Waits | Refused = GRANTED
    tasks_or_error: tuple[Task, ...] | Exception = ()
    knows_accounts = False
    submitted: Submission | None = None

    def __init__(self, site: object, slurm: object, present: object) -> None: ...

    def __enter__(self) -> PlayedTwin:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def ask(self, request: Submission) -> Granted | Waits | Refused:
        type(self).submitted = request
        return self.answer

    def tasks(self, request: Submission, granted: Granted) -> tuple[Task, ...]:
        if isinstance(self.tasks_or_error, Exception):
            raise self.tasks_or_error
        return self.tasks_or_error


def ask(
    monkeypatch: pytest.MonkeyPatch,
    options: str,
    answer: Granted | Waits | Refused = GRANTED,
    tasks: tuple[Task, ...] | Exception = (),
) -> requests.RequestAnswer:
    slurm = InstalledSlurm((26, 5), release="26.05.5")
    monkeypatch.setattr(asked, "find_slurm", lambda version: slurm)
    twin = type("_Twin", (PlayedTwin,), {"answer": answer, "tasks_or_error": tasks})
    monkeypatch.setattr(asked, "Twin", twin)
    request = requests.parse_request(options.split(), "sbatch")
    where = requests.asked_site(TEXTS, requests.read_site(TEXTS), live=False)
    found = requests.ask_slurm(request, where, (26, 5))
    assert found is not None
    PlayedTwin.submitted = twin.submitted  # type: ignore[attr-defined]
    return found


def test_a_grant_has_its_tasks_in_the_order_of_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = (Task(0, "n4", "2", (0,)), Task(1, "n4", "3", (1,)))
    found = ask(monkeypatch, "--gpus=2 -n2", tasks=tasks).answer
    assert isinstance(found, Grant)
    assert found.nodes[0].gpus == (2, 3)
    assert len(found.tasks_on("n4")) == 2
    assert [(t.gpus, t.variable) for t in found.tasks] == [((2,), "2"), ((3,), "3")]


def test_tasks_that_cannot_be_seen_are_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    found = ask(monkeypatch, "--gpus=2", tasks=Unavailable("no compiler")).answer
    assert isinstance(found, Grant)
    assert found.tasks == ()
    assert any("no compiler" in note for note in found.notes)
    request = requests.parse_request(["--gpus=2"], "sbatch")
    assert requests.sentence(request, found).startswith("1 node, 2 GPUs in all;")


def test_a_step_that_fails_is_told_apart_from_one_that_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failed = WrongState("the job starts, but srun in it fails: srun: error: x")
    waits = WrongState("the job starts, but no step starts: srun: retrying")
    for error, stage in ((failed, "step"), (waits, "hangs")):
        answer = ask(monkeypatch, "--gpus=2", tasks=error).answer
        assert isinstance(answer, SlurmRefusal)
        assert answer.stage == stage


def test_slurms_reason_of_a_job_that_waits_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = ask(monkeypatch, "--gpus=2", Waits("PartitionTimeLimit", "JobId=1")).answer
    assert answer == SlurmRefusal(
        "waits", "its time limit is not within the partition's (PartitionTimeLimit)"
    )


def test_a_refusal_has_the_documented_reason_beside_slurms(monkeypatch: pytest.MonkeyPatch) -> None:
    line = (
        "sbatch: error: Batch job submission failed: Invalid generic resource (gres) specification"
    )
    answer = ask(monkeypatch, "--gpus=3 --gpus-per-node=2", Refused(line, line)).answer
    assert isinstance(answer, SlurmRefusal)
    assert answer.reason.startswith("Batch job submission failed: Invalid generic resource")
    assert "--gpus=3 is not a multiple of the 2 GPUs per node" in answer.reason
    assert answer.would_work


def test_what_is_left_out_is_in_the_answer_and_its_values_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = "--gpus=2 --output=/srv/x --export=TOKEN=1 --account=a --reservation=r --licenses=l"
    found = ask(monkeypatch, options)
    assert PlayedTwin.submitted == Submission("sbatch", ("--gpus=2",))
    assert found.judgement.says == "yes"
    assert found.judgement.source.startswith("Slurm 26.05.5 ")
    assert found.judgement.left_out == (
        "--output, --export (not about what the job gets)",
        "--account, --reservation (it needs the site's present state)",
        "--licenses (a twin does not have the site's licences)",
    )
    assert not any("TOKEN" in step for step in found.steps)


def test_a_twin_with_the_sites_accounts_is_asked_about_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(PlayedTwin, "knows_accounts", True)
    found = ask(monkeypatch, "--gpus=2 --account=a --qos=q --reservation=r")
    assert PlayedTwin.submitted == Submission("sbatch", ("--gpus=2", "--account=a", "--qos=q"))
    assert found.judgement.left_out == ("--reservation (it needs the site's present state)",)


@pytest.mark.parametrize("command", ["sbatch", "salloc", "srun"])
def test_every_option_of_slurm_is_carried_refused_by_name_or_noted(command: str) -> None:
    for option in requests.known(command).values():
        name = "cpu-bind" if option.name == "cpu_bind" else option.name
        given = [requests.Given(name, "" if option.argument == "n" else "1", "")]
        request = SlurmRequest(command, given=tuple(given))
        submission, left_out = requests.twin_submission(request)
        carried = [word for word in submission.options if word.split("=")[0] == f"--{name}"]
        noted = [one for one in left_out if one.option == name]
        assert len(carried) + len(noted) == 1, name
        if noted and option.about == "step":
            site = requests.KnownSite(_where(), (26, 5))
            answer = requests.explain_request(
                request, site, (26, 5), requests.AnswerSources(local=False)
            )
            assert answer.judgement.says == "not known", name
            assert "heterogeneous" in answer.judgement.because or name in answer.judgement.because


def _where() -> requests.AskedSite:
    return requests.asked_site(TEXTS, requests.read_site(TEXTS), live=False)


def test_a_twin_of_2205_does_not_tell_cpus_where_cores_are_reserved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such a twin gives reserved cores to jobs."""
    monkeypatch.setattr(asked, "Twin", type("_Twin", (PlayedTwin,), {"answer": GRANTED}))
    monkeypatch.setattr(asked, "find_slurm", InstalledSlurm)
    whole = requests.read_site(TEXTS)
    request = requests.parse_request(["--gpus=2"], "sbatch")

    def cpus(reserved: int, version: tuple[int, int]) -> tuple[int, ...] | str:
        shapes = tuple(replace(shape, reserved=reserved) for shape in whole.shapes)
        where = requests.asked_site(TEXTS, replace(whole, shapes=shapes), live=False)
        explanation = requests.ask_slurm(request, where, version)
        assert explanation is not None
        answer = explanation.answer
        if isinstance(answer, SlurmRefusal):
            return answer.stage
        assert isinstance(answer, Grant)
        known = not any("CoreSpecCount" in note for note in answer.notes)
        assert known == bool(answer.nodes[0].cpus)
        return answer.nodes[0].cpus

    every = whole.shape_of("n4").cores * whole.shape_of("n4").threads
    assert cpus(0, (22, 5)) == (0, 1)
    assert cpus(1, (22, 5)) == ()
    assert cpus(1, (26, 5)) == (0, 1)
    assert cpus(every - 1, (22, 5)) == "unknown"


_NODE_WORDS = "Batch job submission failed: Requested node configuration is not available"


@pytest.mark.parametrize(
    ("answer", "version", "reserved", "says"),
    [
        (Refused(f"sbatch: error: {_NODE_WORDS}"), (22, 5), 4, "not known"),
        (Refused(f"sbatch: error: {_NODE_WORDS}"), (22, 5), 0, "no"),
        (Refused(f"sbatch: error: {_NODE_WORDS}"), (26, 5), 4, "no"),
        (Refused("sbatch: error: invalid partition specified: x"), (22, 5), 4, "no"),
        (Waits("Resources", "JobId=1"), (22, 5), 4, "not known"),
        (Waits("JobHeldUser", "JobId=1"), (22, 5), 4, "no"),
    ],
)
def test_a_twin_that_counts_reserved_cores_otherwise_refuses_nobody(
    answer: Refused | Waits,
    version: tuple[int, int],
    reserved: int,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(asked, "Twin", type("_Twin", (PlayedTwin,), {"answer": answer}))
    monkeypatch.setattr(asked, "find_slurm", InstalledSlurm)
    whole = requests.read_site(TEXTS)
    shapes = tuple(replace(shape, reserved=reserved) for shape in whole.shapes)
    where = requests.asked_site(TEXTS, replace(whole, shapes=shapes), live=False)
    found = requests.ask_slurm(requests.parse_request(["--gpus=2"]), where, version)
    assert found is not None
    assert found.judgement.says == says


def test_a_size_that_nobody_gave_refuses_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    class SmallOrLarge(PlayedTwin):
        def __init__(self, site: object, slurm: object, present: object = None) -> None:
            refused = Refused(f"sbatch: error: {_NODE_WORDS}")
            self.answer = GRANTED if site == large else refused

    monkeypatch.setattr(asked, "Twin", SmallOrLarge)
    monkeypatch.setattr(asked, "find_slurm", InstalledSlurm)
    idle = requests.asked_site(TEXTS, requests.read_site(TEXTS), live=False)
    large = replace(idle.files, gres_conf="larger")
    request = requests.parse_request(["--gpus=2", "-c", "900"])
    for site, says in ((replace(idle, larger=large), "not known"), (idle, "no")):
        found = requests.ask_slurm(request, site, (26, 5))
        assert found is not None
        assert found.judgement.says == says


def test_fields_that_slurm_does_not_show_get_no_twins_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(asked, "Twin", PlayedTwin)
    monkeypatch.setattr(asked, "find_slurm", InstalledSlurm)
    texts = replace(TEXTS, nodes=TEXTS.nodes.replace("RealMemory=", "Renamed="))
    where = requests.asked_site(texts, requests.read_site(texts), live=False)
    request = requests.parse_request(["--gpus=2"], "sbatch")
    assert requests.ask_slurm(request, where, (26, 5)) is None
    site = requests.KnownSite(where, (26, 5))
    answer = requests.explain_request(request, site, (26, 5), requests.AnswerSources())
    assert answer.judgement.says == "not known"
    assert "RealMemory" in answer.judgement.because


def test_gpus_that_no_gres_conf_places_are_counted_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked, "Twin", type("_Twin", (PlayedTwin,), {"answer": GRANTED}))
    monkeypatch.setattr(asked, "find_slurm", InstalledSlurm)
    texts = replace(TEXTS, gres_conf="", nodes=TEXTS.nodes.replace("(S:0)", "(S:0-1)"))
    site = replace(requests.read_site(texts), unplaced=frozenset({"n4"}))
    request = requests.parse_request(["--gpus=2"], "sbatch")
    explanation = requests.ask_slurm(request, requests.asked_site(texts, site, live=False), (26, 5))
    assert explanation is not None
    assert isinstance(explanation.answer, Grant)
    assert any("only how many" in note for note in explanation.answer.notes)


class PlayedService:
    """In place of a twin service: one answer, or why there is none."""

    place = "head:8094"

    def __init__(self, answer: TwinAnswer | Exception) -> None:
        self.answer = answer
        self.asked: list[TwinQuestion] = []

    def ask(self, question: TwinQuestion) -> TwinAnswer:
        self.asked.append(question)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def from_service(options: str, answer: TwinAnswer | Exception) -> requests.RequestAnswer:
    service = PlayedService(answer)
    where = requests.asked_site(TEXTS, requests.read_site(TEXTS), live=False)
    request = requests.parse_request(options.split(), "sbatch")
    sources = requests.AnswerSources(service)
    site = requests.KnownSite(where, (26, 5), live=True)
    found = requests.explain_request(request, site, (26, 5), sources)
    assert [(one.options, one.tasks) for one in service.asked] == [
        (("--gpus=2", "--qos=q", "--tasks-per-node=2"), True)
    ]
    return found


def test_a_twin_service_is_asked_first() -> None:
    tasks = (Task(0, "n4", "2,3"),)
    answer = TwinAnswer("26.05.5", GRANTED, age=1.5, tasks=tasks, accounts=True)
    found = from_service(
        "--gpus=2 --qos=q --tasks-per-node=2 --licenses=l --nodefile=/etc/x -w ./hosts", answer
    )
    assert found.judgement.source == (
        "Slurm 26.05.5 with this site's files, as it stands now, by head:8094"
    )
    assert isinstance(found.answer, Grant)
    assert found.answer.tasks[0].gpus == (2, 3)
    assert found.judgement.left_out == (
        "--licenses (a twin does not have the site's licences)",
        "--nodefile (it names a file)",
        "--nodelist (its value could name a file)",
    )
    idle = from_service(
        "--gpus=2 --qos=q --tasks-per-node=2", TwinAnswer("26.05.5", GRANTED, idle_because="x")
    )
    assert "with its nodes taken as idle (x)" in idle.judgement.source


def test_a_twin_service_that_does_not_answer_is_named() -> None:
    found = from_service("--gpus=2 --qos=q --tasks-per-node=2", Unavailable("the service is away"))
    assert found.warnings == ("the service is away",)
    assert found.judgement.says == "not known"
    assert found.judgement.source == "sbatch's manual page"


def test_an_option_that_the_service_leaves_out_is_in_the_answer() -> None:
    answer = TwinAnswer("26.05.5", GRANTED, left_out=("qos",))
    found = from_service("--gpus=2 --qos=q --tasks-per-node=2", answer)
    assert found.judgement.left_out == ("--qos (the service has no such state)",)


@pytest.mark.parametrize(
    ("options", "sees", "text"),
    [
        ("--gpus=2 --nodes=2", [(2, 3)], "Slurm gives 1 of the 2 nodes"),
        ("--gpus=2 --exclusive", [(2,)], "the job holds every GPU of its nodes"),
        ("--gpus=2 -n2", [(2, 3), ()], "1 of the 2 tasks get no GPU"),
        ("--gpus=2 -n2", [(2, 3), (2, 3)], "choose by SLURM_LOCALID"),
        ("--gpus=2 --gpu-bind=closest", [(2, 3)], "closest binds nothing"),
        ("--gpus=2 --gpu-bind=single:1", [(0,)], "GPUs of the node that are not the job's"),
    ],
)
def test_what_a_newcomer_would_not_expect_is_advised(
    options: str, sees: list[tuple[int, ...]], text: str
) -> None:
    hardware = {"n4": requests.NodeHardware(gpus=4, confined=False)}
    node = GrantedNode("n4", (), 0, (2, 3))
    tasks = tuple(
        Task(rank, "n4", ",".join(map(str, gpus)) or None, gpus=gpus)
        for rank, gpus in enumerate(sees)
    )
    request = requests.parse_request(options.split())
    advised = requests.advice(request, Grant((node,), tasks, hardware))
    assert any(text in line for line in advised), advised
    plain = requests.parse_request(["--gpus=2", "--gpu-bind=single:2"])
    alone = Task(0, "n4", "2,3", gpus=(2, 3))
    assert requests.advice(plain, Grant((node,), (alone,), hardware)) == ()
