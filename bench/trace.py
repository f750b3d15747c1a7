"""What a record of `poprun --trace` costs: of the instance that makes it, and of poprun.

A record is a collective or a mark. The instance's side is popdist's, with its pipe; poprun's reads
the pipe and writes Perfetto's packets into the file, those of the slowest instance included.
Processor time of both, a record each; the median of some rounds. And what popdist.mark costs where
nothing is traced.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable

import popdist
from bench import Figures, figure
from podwright.timeline import TraceWriter, open_file
from popdist._trace_records import Records

RANKS, ROUNDS, STEPS = 4, 15, 400
#: Records that an instance makes before they are read, as many as its pipe takes.
_TOGETHER = 100


def run() -> Figures:
    """The figures."""
    rounds = [_round() for _ in range(ROUNDS)]
    theirs = statistics.median(instance for instance, _ in rounds)
    ours = statistics.median(launch for _, launch in rounds)
    both = statistics.median(instance + launch for instance, launch in rounds)
    told = {"instances": RANKS, "records": RANKS * STEPS * 2, "rounds": ROUNDS}
    yield figure("trace.record", round(both * 1e6, 2), "us", limit=5.0, **told)
    yield figure("trace.instance", round(theirs * 1e6, 2), "us", **told)
    yield figure("trace.poprun", round(ours * 1e6, 2), "us", **told)
    count = 100_000
    off = _timed(lambda: _marks(count))
    yield figure("trace.off", round(off / count * 1e6, 3), "us", marks=count)


def _marks(count: int) -> None:
    for _ in range(count):
        popdist.mark("epoch")


def _timed(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def _round() -> tuple[float, float]:
    """Seconds of processor time of a record: in an instance, and in poprun."""
    theirs = ours = 0.0
    with tempfile.TemporaryDirectory() as folder:
        trace = TraceWriter(open_file(os.path.join(folder, "trace")), RANKS)
        trace.begin("launch")
        trace.attempt(1)
        for rank in range(RANKS):
            trace.instance_began(rank, "here")
        trace.open()
        pipes = [os.pipe() for _ in range(RANKS)]
        for handles in pipes:
            for handle in handles:
                os.set_blocking(handle, False)
        records = [Records(writing) for _, writing in pipes]
        for _ in range(STEPS // _TOGETHER):
            for each in records:
                theirs += _timed(lambda each=each: _steps(each))  # type: ignore[misc]
            for rank, (reading, _) in enumerate(pipes):
                ours += _timed(lambda r=rank, h=reading: _read(trace, r, h))  # type: ignore[misc]
        trace.close()
        assert not trace.problem
        for handles in pipes:
            for handle in handles:
                os.close(handle)
    count = RANKS * STEPS * 2
    return theirs / count, ours / count


def _steps(records: Records) -> None:
    for _ in range(_TOGETHER):
        records.mark("step")
        records.collective(b"allReduceSum", records.begin(), 4096, 0, RANKS)
    records.flush()


def _read(trace: TraceWriter, rank: int, handle: int) -> None:
    while True:
        try:
            data = os.read(handle, 65536)
        except BlockingIOError:
            return
        trace.records(rank, data)
