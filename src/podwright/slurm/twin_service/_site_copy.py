"""What the service knows of the site at one moment. The keeper copies it and sends it over a
pipe.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Final

import msgspec

from podwright.errors import Denied, InvalidRequest, Unavailable
from podwright.slurm.reader import SHOW_CONFIG, SHOW_NODES, SHOW_PARTITIONS, SlurmConfig
from podwright.slurm.site.blocking_commands import Ask
from podwright.slurm.site.releases import SlurmVersion, release_of
from podwright.slurm.twin import Present, SiteFiles, allowed_groups, present_copied, read_names

#: The most bytes of one message. The state of a site with a hundred thousand jobs fits.
_LARGEST_COPY_BYTES: Final = 1 << 30
_LENGTHS_FORMAT: Final = struct.Struct("!II")


@dataclass(frozen=True)
class SiteCopy:
    """The site at one moment.

    files: what scontrol shows, and the files beside slurm.conf. present: the state of slurmctld;
    None where it cannot be read, and no_state then says why. hides: PrivateData. slurm_uid:
    SlurmUser. read_at: when the state was read, by time.monotonic, which all processes share.
    folder: StateSaveLocation.
    """

    files: SiteFiles
    version: SlurmVersion
    slurm_uid: int
    hides: frozenset[str] = frozenset()
    present: Present | None = None
    no_state: str = ""
    read_at: float = 0.0
    folder: str = ""  # StateSaveLocation


@dataclass(frozen=True)
class StateStamp:
    """The time and size of each file of a state folder. A copy is taken only where one has
    changed.
    """

    files: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def copy_files(ask: Ask) -> SiteCopy:
    """Return the site's settings, without its state.

    Raises Unavailable where Slurm does not answer, and FieldNotKnown.
    """
    config_text = ask(list(SHOW_CONFIG))
    if not config_text:
        raise Unavailable(
            "slurmctld does not answer scontrol", would_work="Start the service beside slurmctld"
        )
    config = SlurmConfig(config_text)
    conf_folder = Path(config.value("SLURM_CONF")).parent
    has_topology_yaml = release_of(config.version).several_topologies
    site_files = SiteFiles(
        config=config_text,
        nodes=ask(list(SHOW_NODES)),
        partitions=ask(list(SHOW_PARTITIONS)),
        gres_conf=_file_text(conf_folder / "gres.conf"),
        topology_conf=_file_text(conf_folder / "topology.conf")
        if config.topology != "flat"
        else "",
        topology_yaml=_file_text(conf_folder / "topology.yaml") if has_topology_yaml else "",
    )
    if not (site_files.nodes and site_files.partitions):
        raise Unavailable("scontrol shows no nodes or no partitions")
    site_names = read_names(ask, allowed_groups(site_files))
    return SiteCopy(
        files=replace(site_files, names=site_names),
        version=config.version,
        slurm_uid=config.user_id,
        hides=config.hides,
        folder=config.optional("StateSaveLocation"),
    )


def copy_state(site_copy: SiteCopy, now: float) -> SiteCopy:
    """Return the copy with the present state, or with the reason why that cannot be read."""
    try:
        present = present_copied(Path(site_copy.folder))
    except (Denied, InvalidRequest, OSError) as error:
        problem = getattr(error, "problem", "") or str(error)
        return replace(site_copy, present=None, no_state=problem, read_at=now)
    return replace(site_copy, present=present, no_state="", read_at=now)


def stamp(state_folder: Path) -> StateStamp:
    """Return the times and sizes of a state folder's files. Files that cannot be read are left
    out.
    """
    times_and_sizes = {}
    for name in ("job_state", "node_state", "resv_state", "assoc_mgr_state", "part_state"):
        try:
            status = (state_folder / name).stat()
        except OSError:
            continue
        times_and_sizes[name] = (status.st_mtime_ns, status.st_size)
    return StateStamp(times_and_sizes)


class _CopyHead(msgspec.Struct):
    """The head of a message.

    copy: the copy without its state. sizes: the size of each file of the state; None where the
    state is that of the message before.
    """

    copy: SiteCopy
    sizes: dict[str, int] | None


def send(stream: IO[bytes], site_copy: SiteCopy, former_copy: SiteCopy | None) -> None:
    """Write a copy: the sizes, the values as JSON, and the state, unless that is the state of the
    copy before. Raises OSError.
    """
    same_state = former_copy is not None and former_copy.present is site_copy.present
    state_files = site_copy.present.state if site_copy.present and not same_state else {}
    without_state = replace(
        site_copy, present=replace(site_copy.present, state={}) if site_copy.present else None
    )
    file_sizes = (
        None if same_state else {name: len(content) for name, content in state_files.items()}
    )
    head_json = msgspec.json.encode(_CopyHead(without_state, file_sizes))
    state_bytes = b"".join(state_files.values())
    stream.write(_LENGTHS_FORMAT.pack(len(head_json), len(state_bytes)) + head_json + state_bytes)
    stream.flush()


def receive(stream: IO[bytes], former_copy: SiteCopy | None) -> SiteCopy | None:
    """Return the next copy, or None at the end of the stream. former_copy: the copy before it."""
    length_prefix = stream.read(_LENGTHS_FORMAT.size)
    if len(length_prefix) < _LENGTHS_FORMAT.size:
        return None
    head_size, body_size = _LENGTHS_FORMAT.unpack(length_prefix)
    if head_size + body_size > _LARGEST_COPY_BYTES:
        return None
    head_json = stream.read(head_size)
    if len(head_json) < head_size:
        return None
    head = msgspec.json.decode(head_json, type=_CopyHead)
    if head.copy.present is None:
        return head.copy
    if head.sizes is None:
        return replace(head.copy, present=former_copy.present if former_copy else None)
    state_files = {name: stream.read(file_size) for name, file_size in head.sizes.items()}
    if sum(map(len, state_files.values())) < body_size:
        return None
    return replace(head.copy, present=replace(head.copy.present, state=state_files))


def _file_text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
