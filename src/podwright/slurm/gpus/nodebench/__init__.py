"""Is each node as fast as the others, and as the hardware should be?"""

from podwright.slurm.gpus.nodebench._bench import Bench, Slow, bench, srun_step
from podwright.slurm.gpus.nodebench._history import Change, changes, keep, rates
from podwright.slurm.gpus.nodebench._measures import PAIRS, ways
from podwright.slurm.gpus.nodebench._rounds import BenchVerdict, judge, most_rounds, next_round

__all__ = [
    "PAIRS",
    "Bench",
    "BenchVerdict",
    "Change",
    "Slow",
    "bench",
    "changes",
    "judge",
    "keep",
    "most_rounds",
    "next_round",
    "rates",
    "srun_step",
    "ways",
]
