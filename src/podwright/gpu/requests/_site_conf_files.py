"""Reads a site's slurm.conf and the files beside it, for a twin."""

from __future__ import annotations

from pathlib import Path

from podwright.slurm.site.files import included_files, includes, lines, read
from podwright.slurm.twin import SiteFiles


def read_site_files(slurm_conf: Path, fallback: SiteFiles | None = None) -> SiteFiles:
    """slurm.conf with its included files, and gres.conf, topology.conf and topology.yaml of its
    folder. Files that do not exist come from `fallback`. Raises InvalidRequest where an existing or
    included file cannot be read."""
    for file in (slurm_conf, *included_files(slurm_conf)):
        for included_path in includes(file):
            read(included_path)
    return SiteFiles(
        slurm_conf="\n".join(lines(slurm_conf)),
        gres_conf=_file_text(slurm_conf, "gres.conf", fallback.gres_conf if fallback else ""),
        topology_conf=_file_text(
            slurm_conf, "topology.conf", fallback.topology_conf if fallback else ""
        ),
        topology_yaml=_file_text(
            slurm_conf, "topology.yaml", fallback.topology_yaml if fallback else ""
        ),
    )


def _file_text(slurm_conf: Path, file_name: str, default_text: str) -> str:
    path = slurm_conf.with_name(file_name)
    return "\n".join(lines(path)) if path.exists() and read(path) is not None else default_text
