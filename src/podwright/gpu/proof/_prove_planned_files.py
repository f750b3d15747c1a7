"""Proves planned files with Slurm's own slurmctld, and tells each result as it is known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from podwright.errors import Unavailable
from podwright.gpu.configure import SiteInventory
from podwright.gpu.proof._check_promises import prove
from podwright.gpu.proof._planned_files import planned_files
from podwright.slurm.site.file_changes import FileChanges
from podwright.slurm.site.releases import SlurmVersion
from podwright.slurm.twin import Twin, find_slurm


def proved(
    slurm_conf: Path,
    file_changes: FileChanges,
    inventory: SiteInventory,
    slurm_version: SlurmVersion,
    *,
    slurm_path: str,
    report: Callable[[str, str], None],
    note: Callable[[str], None],
) -> bool:
    """Check with Slurm's own slurmctld that the planned files have their intended effect.

    slurm_path: where that Slurm is; empty: this machine's. report: gets each promise, and its
    problem if it is not kept. Returns True when the files have their effect, or when no slurmctld
    can be asked, which a note reports.
    """
    slurm = find_slurm(slurm_version, path=slurm_path)
    if slurm is None:
        note(
            f"not proved: there is no slurmctld {slurm_version[0]}.{slurm_version[1]:02} here to "
            "start with these files (Debian: slurmctld; SchedMD, EPEL: slurm-slurmctld; or --slurm)"
        )
        return True
    start_promise = f"slurmctld {slurm.release} starts with these files"
    all_kept = True
    try:
        files = planned_files(slurm_conf, file_changes)
        with Twin(files, slurm) as twin:
            report(start_promise, "")
            for proof in prove(twin, inventory, slurm_version, files.gres_conf):
                if proof.not_known:
                    note(f"not known whether {proof.text}: {proof.not_known}")
                    continue
                report(proof.text, proof.problem)
                all_kept = all_kept and not proof.problem
    except Unavailable as error:
        if "namespaces" in error.problem:
            note(f"not proved: {error.problem}")
            return True
        report(start_promise, error.problem)
        return False
    return all_kept
