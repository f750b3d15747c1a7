"""Asks about each submission in two twins, one with today's files and one with tomorrow's.

Many submissions are shared among several such pairs.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Protocol

from podwright.errors import InvalidRequest, PodwrightError, Unavailable
from podwright.gpu.rehearse._compare import Answer, AnswerPair
from podwright.slurm.twin import InstalledSlurm, Present, SiteFiles, Submission, Twin

#: The most pairs of twins, and the submissions for which another pair is worth its start.
_MOST_PAIRS: Final = 4
_WORTH_A_PAIR: Final = 8


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


def rehearse(
    submissions: Sequence[tuple[Submission, list[str]]],
    before: Side,
    after: Side,
    progress: Callable[[int], None] = lambda count: None,
) -> list[AnswerPair]:
    """The answers of both sides. progress: called with the number of submissions that are answered.

    Raises Unavailable, with the name of the side, where its twin does not start.
    """
    estimate = bool(before.present or after.present)
    with contextlib.ExitStack() as twins, ThreadPoolExecutor(2 * _MOST_PAIRS) as threads:
        # Slurm looks at a new job up to a second after its submission, so a twin mostly waits.
        # Several pairs wait at the same time.
        starts = [
            (threads.submit(_start, before), threads.submit(_start, after))
            for _ in range(min(_MOST_PAIRS, -(-len(submissions) // _WORTH_A_PAIR) or 1))
        ]
        oracles: list[Oracle] = []
        problem: PodwrightError | None = None
        for start in itertools.chain.from_iterable(starts):
            try:
                twin = start.result()
            except PodwrightError as error:
                problem = problem or error
            else:
                twins.callback(twin.close)
                oracles.append(_Estimating(twin) if estimate else twin)
        if problem is not None:
            raise problem
        pairs = list(zip(oracles[::2], oracles[1::2], strict=True))
        return ask_both(submissions, pairs, progress)


class _Estimating:
    """A twin that is also asked when a waiting job would start."""

    def __init__(self, twin: Twin) -> None:
        self._twin = twin

    def ask(self, request: Submission) -> Answer:
        return self._twin.ask(request, estimate=True)


def ask_both(
    submissions: Sequence[tuple[Submission, list[str]]],
    pairs: Sequence[tuple[Oracle, Oracle]],
    progress: Callable[[int], None],
) -> list[AnswerPair]:
    """Ask both sides about each submission. The answers are in the order of the submissions.

    pairs: one oracle of each side; each pair takes the next submission when it has answered one,
    and both of its oracles are asked at the same time. The first error ends all.
    """
    remaining = iter(enumerate(submissions))
    answers: dict[int, AnswerPair] = {}
    lock = threading.Lock()
    failed = threading.Event()

    def ask_all(before: Oracle, after: Oracle) -> None:
        with ThreadPoolExecutor(1) as second:
            while not failed.is_set():
                with lock:
                    index, (submission, jobs) = next(remaining, (0, (None, [])))
                if submission is None:
                    return
                try:
                    other = second.submit(after.ask, submission)
                    pair = AnswerPair(
                        tuple(jobs), submission, before.ask(submission), other.result()
                    )
                except BaseException:
                    failed.set()
                    raise
                with lock:
                    answers[index] = pair
                    progress(len(answers))

    with ThreadPoolExecutor(len(pairs)) as threads:
        futures = [threads.submit(ask_all, *pair) for pair in pairs]
        try:
            for future in futures:
                future.result()
        except BaseException:
            failed.set()
            raise
    return [answers[submission_index] for submission_index in range(len(submissions))]


def _start(side: Side) -> Twin:
    """Return a started twin, which its caller ends."""
    try:
        return Twin(side.files, side.slurm, side.present).__enter__()
    except InvalidRequest as error:
        raise InvalidRequest(f"{side.name}: {error.problem}") from error
    except Unavailable as error:
        raise Unavailable(f"{side.name}: {error.problem}") from error
