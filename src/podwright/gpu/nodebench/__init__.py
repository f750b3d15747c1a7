"""Measures whether each node is as fast as the others, and as fast as its hardware should be."""

from podwright.gpu.nodebench._bench import Bench, Slow, bench, srun_step
from podwright.gpu.nodebench._bench_job import become_job, bench_command, extent, job_command
from podwright.gpu.nodebench._find_slow_nodes import BenchVerdict, judge, most_rounds, next_round
from podwright.gpu.nodebench._format_bench_result import as_json, as_text
from podwright.gpu.nodebench._history import Change, changes, keep, rates, record
from podwright.gpu.nodebench._measures import PAIR_MEASURES, ways

__all__ = [
    "PAIR_MEASURES",
    "Bench",
    "BenchVerdict",
    "Change",
    "Slow",
    "as_json",
    "as_text",
    "become_job",
    "bench",
    "bench_command",
    "changes",
    "extent",
    "job_command",
    "judge",
    "keep",
    "most_rounds",
    "next_round",
    "rates",
    "record",
    "srun_step",
    "ways",
]
