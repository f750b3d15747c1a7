"""A site's files as they will be after a plan of changes, in place of those on disk."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from podwright.gpu.rehearse import read_site_files
from podwright.slurm.site.changes import FileChanges
from podwright.slurm.site.files import included, read
from podwright.slurm.twin import SiteFiles

_BESIDE = ("gres.conf", "topology.conf", "topology.yaml")


def planned_files(conf: Path, plan: FileChanges) -> SiteFiles:
    """slurm.conf and the files beside it after the plan. Raises InvalidRequest for an existing file
    that cannot be read."""
    names = [conf, *(conf.with_name(name) for name in _BESIDE)]
    if conf.exists():
        names += [path for path in included(conf) if path.is_relative_to(conf.parent)]
    with TemporaryDirectory(prefix="podwright-") as folder:
        for path in names:
            text = plan.texts[path] if path in plan.texts else _read_if_present(path)
            if text is None:
                continue
            place = Path(folder, path.relative_to(conf.parent))
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(text.encode("utf-8", "surrogateescape"))
        return read_site_files(Path(folder, conf.name))


def _read_if_present(path: Path) -> str | None:
    return read(path) if path.exists() else None
