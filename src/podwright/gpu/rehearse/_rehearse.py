"""Asks about each submission in two twins, one with today's files and one with tomorrow's.

Many submissions are shared among several such pairs. On a busy machine a twin may answer before a
node is up or before its scheduler has looked twice. So a difference counts if a second round of
questions has the same answers.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from podwright.errors import InvalidRequest, PodwrightError, Unavailable
from podwright.gpu.rehearse._compare_answers import (
    Answer,
    AnswerPair,
    differences,
    may_move,
    same_answers,
)
from podwright.slurm.twin import InstalledSlurm, Present, SiteFiles, Submission, Twin

#: The most pairs of twins, and the submissions for which another pair is worth its start.
_MAX_TWIN_PAIRS: Final = 4
_SUBMISSIONS_PER_PAIR: Final = 8
_MOST_ROUNDS: Final = 4  # of questions about one submission


@dataclass(frozen=True)
class Side:
    """The files of a site and the Slurm that starts with them. name: for messages. present: the
    state of the cluster; without it all nodes are idle."""

    name: str
    files: SiteFiles
    slurm: InstalledSlurm
    present: Present | None = None


class Oracle(Protocol):
    """Something that answers a submission, such as a Twin."""

    def ask(self, request: Submission) -> Answer:
        """Ask Slurm about one request."""
        ...


class Rehearsal(NamedTuple):
    """The answers of both sides. unsettled: those that differed, and differently each time."""

    answers: list[AnswerPair]
    unsettled: list[AnswerPair]


def rehearse(
    submissions: Sequence[tuple[Submission, list[str]]],
    before: Side,
    after: Side,
    report_progress: Callable[[int], None] = lambda count: None,
) -> Rehearsal:
    """The answers of both sides. report_progress: called with the number of submissions that are
    answered.

    Raises Unavailable, with the name of the side, where its twin does not start.
    """
    ask_estimate = bool(before.present or after.present)
    with contextlib.ExitStack() as twin_stack, ThreadPoolExecutor(2 * _MAX_TWIN_PAIRS) as executor:
        # Slurm looks at a new job up to a second after its submission, so a twin mostly waits.
        # Several pairs wait at the same time.
        twin_starts = [
            (executor.submit(_start_twin, before), executor.submit(_start_twin, after))
            for _ in range(min(_MAX_TWIN_PAIRS, -(-len(submissions) // _SUBMISSIONS_PER_PAIR) or 1))
        ]
        oracles: list[Oracle] = []
        start_error: PodwrightError | None = None
        for twin_start in itertools.chain.from_iterable(twin_starts):
            try:
                twin = twin_start.result()
            except PodwrightError as error:
                start_error = start_error or error
            else:
                twin_stack.callback(twin.close)
                oracles.append(_EstimatingTwin(twin) if ask_estimate else twin)
        if start_error is not None:
            raise start_error
        oracle_pairs = list(zip(oracles[::2], oracles[1::2], strict=True))
        answers = ask_both_sides(submissions, oracle_pairs, report_progress)
        return settled(answers, oracle_pairs)


def settled(
    answers: Sequence[AnswerPair], oracle_pairs: Sequence[tuple[Oracle, Oracle]]
) -> Rehearsal:
    """Ask again about each submission whose answers differ and may move, until two rounds have the
    same answers or _MOST_ROUNDS have passed."""
    final_answers = list(answers)
    open_positions = [
        position for position, answer_pair in enumerate(answers) if may_move(answer_pair)
    ]
    for _ in range(_MOST_ROUNDS - 1):
        questions = [
            (final_answers[position].submission, list(final_answers[position].jobs))
            for position in open_positions
        ]
        # The fewer twins are asked at a time, the sooner each decides.
        pair_count = -(-len(questions) // _SUBMISSIONS_PER_PAIR) or 1
        repeated = ask_both_sides(questions, oracle_pairs[:pair_count], lambda count: None)
        still_open = []
        for position, answer_pair in zip(open_positions, repeated, strict=True):
            if differences([answer_pair]) and not same_answers(
                final_answers[position], answer_pair
            ):
                still_open.append(position)
            final_answers[position] = answer_pair
        open_positions = still_open
        if not open_positions:
            break
    unsettled = [final_answers[position] for position in open_positions]
    return Rehearsal([pair for pair in final_answers if pair not in unsettled], unsettled)


class _EstimatingTwin:
    """A twin that is also asked when a waiting job would start."""

    def __init__(self, twin: Twin) -> None:
        self._twin = twin

    def ask(self, request: Submission) -> Answer:
        return self._twin.ask(request, estimate=True)


def ask_both_sides(
    submissions: Sequence[tuple[Submission, list[str]]],
    oracle_pairs: Sequence[tuple[Oracle, Oracle]],
    report_progress: Callable[[int], None],
) -> list[AnswerPair]:
    """Ask both sides about each submission. The answers are in the order of the submissions.

    oracle_pairs: one oracle of each side; each pair takes the next submission when it has answered
    one, and both of its oracles are asked at the same time. The first error ends all.
    """
    unasked = iter(enumerate(submissions))
    answers: dict[int, AnswerPair] = {}
    lock = threading.Lock()
    failure_event = threading.Event()

    def ask_all(before_oracle: Oracle, after_oracle: Oracle) -> None:
        with ThreadPoolExecutor(1) as after_executor:
            while not failure_event.is_set():
                with lock:
                    index, (submission, jobs) = next(unasked, (0, (None, [])))
                if submission is None:
                    return
                try:
                    after_answer = after_executor.submit(after_oracle.ask, submission)
                    answer_pair = AnswerPair(
                        tuple(jobs),
                        submission,
                        before_oracle.ask(submission),
                        after_answer.result(),
                    )
                except BaseException:
                    failure_event.set()
                    raise
                with lock:
                    answers[index] = answer_pair
                    report_progress(len(answers))

    with ThreadPoolExecutor(len(oracle_pairs)) as executor:
        futures = [executor.submit(ask_all, *oracle_pair) for oracle_pair in oracle_pairs]
        try:
            for future in futures:
                future.result()
        except BaseException:
            failure_event.set()
            raise
    return [answers[submission_index] for submission_index in range(len(submissions))]


def _start_twin(side: Side) -> Twin:
    """Return a started twin, which its caller ends."""
    try:
        return Twin(side.files, side.slurm, side.present).__enter__()
    except InvalidRequest as error:
        raise InvalidRequest(f"{side.name}: {error.problem}") from error
    except Unavailable as error:
        raise Unavailable(f"{side.name}: {error.problem}") from error
