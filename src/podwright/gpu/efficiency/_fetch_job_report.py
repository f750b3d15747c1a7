"""Reports a job from what Slurm's accounting and the samples of their steps tell now."""

from __future__ import annotations

from pathlib import Path

from podwright.errors import Unavailable
from podwright.gpu.efficiency._job_report import Efficiency, job_of_samples, report
from podwright.gpu.efficiency._sacct_jobs import Ask, one_job
from podwright.gpu.efficiency._samples import read_samples


def job_report(run_slurm: Ask, job_id: str, samples_folder: str = "") -> Efficiency:
    """Return the report of a job. samples_folder: where they are; empty: beside its output.

    A site without slurmdbd has no accounting, but a job may have sampled its GPUs itself. Raises
    Unavailable where there is neither.
    """
    try:
        job = one_job(run_slurm, job_id)
    except Unavailable:
        job_samples = read_samples(Path(samples_folder or f"slurm-{job_id}.gpus"))
        if job_samples is None or not job_samples.uses:
            raise
        return report(job_of_samples(job_id, job_samples), job_samples)
    return report(
        job, read_samples(Path(samples_folder or Path(job.folder) / f"slurm-{job.raw}.gpus"))
    )
