"""A site's files as they will be after a plan of changes, in place of those on disk."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from podwright.gpu.requests import read_site_files
from podwright.slurm.site.file_changes import FileChanges
from podwright.slurm.site.files import included_files, read
from podwright.slurm.twin import SiteFiles

_COMPANION_FILES = ("gres.conf", "topology.conf", "topology.yaml")


def planned_files(slurm_conf: Path, file_changes: FileChanges) -> SiteFiles:
    """slurm.conf and the files beside it after the plan. Raises InvalidRequest for an existing file
    that cannot be read."""
    file_paths = [slurm_conf, *(slurm_conf.with_name(name) for name in _COMPANION_FILES)]
    if slurm_conf.exists():
        file_paths += [
            path for path in included_files(slurm_conf) if path.is_relative_to(slurm_conf.parent)
        ]
    with TemporaryDirectory(prefix="podwright-") as copy_folder:
        for path in file_paths:
            file_text = (
                file_changes.texts[path] if path in file_changes.texts else _read_if_present(path)
            )
            if file_text is None:
                continue
            copy_path = Path(copy_folder, path.relative_to(slurm_conf.parent))
            copy_path.parent.mkdir(parents=True, exist_ok=True)
            copy_path.write_bytes(file_text.encode("utf-8", "surrogateescape"))
        return read_site_files(Path(copy_folder, slurm_conf.name))


def _read_if_present(path: Path) -> str | None:
    return read(path) if path.exists() else None
