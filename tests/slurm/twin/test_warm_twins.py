"""The queue before the twins: whose turn it is, how many wait, and with which state they answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace

import pytest

from podwright.errors import NoCapacity, Unavailable
from podwright.slurm.twin import Granted, Present, SiteFiles, Submission, Task, Waits
from podwright.slurm.twin_service import TwinQuestion
from podwright.slurm.twin_service._site_copy import SiteCopy
from podwright.slurm.twin_service._warm_twins import TwinSource, WarmTwins, _WaitingQuestion

ALICE, BOB, SLURM = 1000, 1001, 64030
COPY = SiteCopy(SiteFiles(config="a"), (26, 5), SLURM, present=Present({"job_state": b"1"}))
ASKED = TwinQuestion("sbatch", ("--gpus=1",))


class FakeTwin:
    """Answers with the state that it runs with, and whom it was asked for."""

    knows_accounts = knows_groups = True

    def __init__(self, copy: SiteCopy, *, with_state: bool, gate: threading.Event) -> None:
        self.state = dict(copy.present.state) if copy.present and with_state else {}
        self.gate = gate

    def ask(self, request: Submission, *, as_uid: int | None = None) -> Granted | Waits:
        assert self.gate.wait(30)
        state = self.state.get("job_state", b"idle").decode()
        record = f"JobId=1 UserId={as_uid} StartTime=soon Reason=ReqNodeNotAvail,Nodes:n4 {state}"
        return Waits("Resources", record) if state == "full" else Granted((), "main", record)

    def tasks(self, request: Submission, granted: Granted | None = None) -> tuple[Task, ...]:
        return (Task(0, "n1", "0"),)

    def renew(self, present: Present) -> None:
        self.state = dict(present.state)

    def refresh(self) -> None:
        pass

    def close(self) -> None:
        pass


class Stage:
    """Twins that are fakes, with a clock of their own. gate: closed, no twin answers."""

    def __init__(self) -> None:
        self.now = 0.0
        self.gate = threading.Event()
        self.gate.set()
        self.started = 0
        source = TwinSource(self.start, _same_files, "26.05.5")
        self.twins = WarmTwins(source, lambda: self.now, workers=2, most=3, each=2)

    def start(self, copy: SiteCopy, with_state: bool) -> FakeTwin:
        self.started += 1
        return FakeTwin(copy, with_state=with_state, gate=self.gate)

    def record(self, uid: int, question: TwinQuestion = ASKED) -> str:
        answer = self.twins.ask(uid, question).result(30).answer
        assert isinstance(answer, Granted | Waits)
        return answer.record


@pytest.fixture
def stage() -> Iterator[Stage]:
    new_stage = Stage()
    yield new_stage
    new_stage.gate.set()
    new_stage.twins.close(10)


def _question(stage: Stage) -> _WaitingQuestion:
    return _WaitingQuestion(ALICE, ASKED, Future(), stage.now)


def _same_files(before: SiteCopy, now: SiteCopy) -> bool:
    return before.files == now.files


def _until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.01)


def test_before_the_site_is_known_nothing_is_asked(stage: Stage) -> None:
    with pytest.raises(Unavailable, match="does not know the site yet"):
        stage.twins.ask(ALICE, ASKED)


def test_a_question_is_its_askers_and_from_the_newest_state(stage: Stage) -> None:
    stage.twins.update(COPY)
    assert "UserId=1000" in stage.record(ALICE)
    stage.now = 100.0
    stage.twins.update(replace(COPY, present=Present({"job_state": b"full"}), read_at=99.0))
    assert stage.record(ALICE).endswith("full")
    answer = stage.twins.ask(BOB, ASKED).result(30)
    assert answer.age is not None
    assert answer.age < 100


def test_questions_that_wait_are_bounded_in_all_and_of_one_user(stage: Stage) -> None:
    stage.twins.update(COPY)
    stage.gate.clear()
    accepted = [stage.twins.ask(ALICE, ASKED) for _ in range(2)]
    with pytest.raises(NoCapacity, match="2 questions of yours"):
        stage.twins.ask(ALICE, ASKED)
    refused = None
    for uid in range(2000, 2010):
        try:
            accepted.append(stage.twins.ask(uid, ASKED))
        except NoCapacity as error:
            refused = error
            break
    assert refused
    assert "3 questions wait already" in refused.problem
    stage.gate.set()
    for future in accepted:
        assert isinstance(future.result(30).answer, Granted)
    assert "UserId=1000" in stage.record(ALICE)


def test_where_nodes_are_private_users_are_answered_with_idle_nodes(stage: Stage) -> None:
    full = Present({"job_state": b"full"})
    stage.twins.update(replace(COPY, present=full, hides=frozenset({"nodes", "jobs"})))
    answer = stage.twins.ask(ALICE, ASKED).result(30)
    assert isinstance(answer.answer, Granted)
    assert answer.age is None
    assert "PrivateData" in answer.idle_because
    for uid in (0, SLURM):
        assert stage.record(uid).endswith("full")


def test_where_jobs_are_private_no_time_of_theirs_is_shown(stage: Stage) -> None:
    full = Present({"job_state": b"full"})
    stage.twins.update(replace(COPY, present=full, hides=frozenset({"jobs", "reservations"})))
    record = stage.record(ALICE)
    assert "StartTime" not in record
    assert "n4" not in record
    assert "StartTime=soon" in stage.record(0)


def test_only_files_that_slurm_reads_start_a_twin_anew(stage: Stage) -> None:
    stage.twins.update(COPY)
    assert stage.record(ALICE).endswith("1")
    stage.now = 100.0
    stage.twins.update(replace(COPY, present=Present({"job_state": b"2"})))
    assert stage.record(ALICE).endswith("2")
    assert stage.started <= 2  # one for each worker
    before = stage.started
    stage.now = 200.0
    stage.twins.update(replace(COPY, files=SiteFiles(config="b")))
    stage.record(ALICE)
    assert stage.started > before


def test_tasks_come_with_the_answer_where_they_are_asked_for(stage: Stage) -> None:
    stage.twins.update(COPY)
    question = replace(ASKED, tasks=True)
    assert stage.twins.ask(ALICE, question).result(30).tasks == (Task(0, "n1", "0"),)


def test_a_client_that_hung_up_while_it_waited_too_long_ends_no_worker(stage: Stage) -> None:
    stage.twins.update(COPY)
    stage.gate.clear()
    busy = [stage.twins.ask(uid, ASKED) for uid in (2001, 2002)]  # both workers
    _until(lambda: all(future.running() for future in busy))
    abandoned = [stage.twins.ask(uid, ASKED) for uid in (2003, 2004)]
    for future in abandoned:
        assert future.cancel()
    stage.now = 1000.0
    stage.gate.set()
    for future in busy:
        future.result(30)
    _until(lambda: stage.twins.counts["cancelled"] == 2)
    assert "UserId=1000" in stage.record(ALICE)


def test_a_twin_that_has_just_started_leaves_questions_to_one_that_is_settled(
    stage: Stage,
) -> None:
    stage.twins.update(COPY)
    first, second = stage.twins._workers
    _until(lambda: first.warm and second.warm)
    stage.now = 10.0
    second.since = 9.0

    def checked() -> bool:
        with stage.twins._changed:
            if not (first.idle and second.idle):  # between two waits
                return False
            stage.twins._waiting.append(_question(stage))
            assert not stage.twins._is_turn_of(second)
            assert stage.twins._is_turn_of(first)
            second.since = first.since - 1.0
            assert stage.twins._is_turn_of(second)
            assert not stage.twins._is_turn_of(first)
            first.since = second.since = 9.0
            assert stage.twins._is_turn_of(first)
            assert stage.twins._is_turn_of(second)
            stage.twins._waiting.clear()
            return True

    _until(checked)


def test_a_twin_renews_only_while_another_is_settled(stage: Stage) -> None:
    stage.twins.update(COPY)
    first, second = stage.twins._workers
    _until(lambda: first.warm and second.warm)
    assert not stage.twins.may_renew(first)
    stage.now = 4.0
    assert stage.twins.may_renew(first)
    second.since = 4.0
    assert not stage.twins.may_renew(first)
    assert stage.twins.may_renew(second)
