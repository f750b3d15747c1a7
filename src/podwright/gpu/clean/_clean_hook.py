"""Runs on behalf of Slurm, before a job, after one, or between jobs: drains the node and gives it
back.

Its drains are told from those of the health check by their reason, and are counted with them: no
more than the cap allows. A node whose GPUs are not known to be free or held is left as it is.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from podwright.errors import InvalidRequest
from podwright.gpu.clean._clean_node import CleanReport, GpusSeen, ask_driver, clean
from podwright.gpu.clean._leftovers import Here
from podwright.gpu.health import (
    CLEAN_FOLDER,
    EPILOG,
    PROLOG,
    STAYS_DRAINED,
    GateOutcome,
    NodeGate,
    Run,
    Settings,
    carry_out,
    log_warning,
    runner,
)
from podwright.ground.endpoints import system_path
from podwright.ground.judgement import Says
from podwright.hosts import host_name
from podwright.slurm.site.conf_lines import settings as site_settings
from podwright.slurm.site.files import read

#: Seconds between looks of a job's hook: the driver frees memory after the last process has ended.
_PAUSES_SECONDS = (0.2, 0.4, 0.8, 1.6, 3.0, 4.0)


class CleanHook(NamedTuple):
    """The result of a hook. code: its exit code; STAYS_DRAINED sends a job elsewhere."""

    report: CleanReport
    outcome: GateOutcome
    code: int


def _here(environ: Mapping[str, str]) -> Here:
    node = environ.get("SLURMD_NODENAME") or host_name()
    cluster = environ.get("SLURM_CLUSTER_NAME", "")
    if not cluster:  # a health check has it only in slurm.conf
        conf_path = environ.get("SLURM_CONF") or system_path("/etc/slurm/slurm.conf")
        with contextlib.suppress(InvalidRequest):
            cluster = site_settings(read(Path(conf_path))).get("clustername", "")
    return Here(node, cluster)


def look(environ: Mapping[str, str], *, end_leftovers: bool = False) -> CleanReport:
    """Look at this node once, without telling Slurm."""
    return clean(
        _here(environ),
        runner({**environ, "LC_ALL": "C.UTF-8"}),
        lambda: ask_driver(environ),
        end_leftovers=end_leftovers,
    )


def hook(
    settings: Settings,
    environ: Mapping[str, str],
    *,
    end_leftovers: bool = False,
    folder: Path = CLEAN_FOLDER,
    slurm: Run | None = None,
    see_gpus: Callable[[], GpusSeen] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> CleanHook:
    """Look at this node, and drain it or give it back."""
    context = environ.get("SLURM_SCRIPT_CONTEXT", "")
    here = _here(environ)
    hook_job = environ.get("SLURM_JOB_ID", "") if context == EPILOG else ""
    slurm_runner = slurm or runner({**environ, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C.UTF-8"})

    def once() -> CleanReport:
        return clean(
            here,
            slurm_runner,
            see_gpus or (lambda: ask_driver(environ)),
            hook_job=int(hook_job) if hook_job.isdigit() else None,
            end_leftovers=end_leftovers,
        )

    report = once()
    for pause in _PAUSES_SECONDS if context else ():
        if not report.reason:
            break
        sleep(pause)
        before = report.ended
        report = once()
        report = msgspec.structs.replace(report, ended=(*before, *report.ended))
    outcome = GateOutcome("fit")  # the hook of a job asks Slurm nothing where all is free
    if report.judgement.says is Says.NOT_KNOWN:
        outcome = GateOutcome("unknown", report.judgement.because)
    elif report.reason or not context:
        gate = NodeGate(here.node, settings.act, settings.cap, held=True)
        outcome = carry_out(gate, report.reason, slurm_runner, sleep, folder)
    if outcome.action not in ("fit", "left"):
        log_warning(f"{here.node} {outcome.action}: {report.reason or outcome.reason}")
    code = 1 if report.judgement.says is not Says.YES and not context else 0
    if report.reason and context == PROLOG and outcome.action in ("drained", "left"):
        code = STAYS_DRAINED
    return CleanHook(report, outcome, code)
