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
from podwright.slurm.site.ask import Ask
from podwright.slurm.site.releases import Version, release_of
from podwright.slurm.twin import Present, SiteFiles, allowed_groups, present_copied, read_names

#: The most bytes of one message. The state of a site with a hundred thousand jobs fits.
_LARGEST: Final = 1 << 30
_SIZE: Final = struct.Struct("!II")


@dataclass(frozen=True)
class SiteCopy:
    """The site at one moment.

    files: what scontrol shows, and the files beside slurm.conf. present: the state of slurmctld;
    None where it cannot be read, and no_state then says why. hides: PrivateData. slurm_uid:
    SlurmUser. read_at: when the state was read, by time.monotonic, which all processes share.
    folder: StateSaveLocation.
    """

    files: SiteFiles
    version: Version
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
    text = ask(list(SHOW_CONFIG))
    if not text:
        raise Unavailable(
            "slurmctld does not answer scontrol", would_work="Start the service beside slurmctld"
        )
    config = SlurmConfig(text)
    folder = Path(config.value("SLURM_CONF")).parent
    several = release_of(config.version).several_topologies
    files = SiteFiles(
        config=text,
        nodes=ask(list(SHOW_NODES)),
        partitions=ask(list(SHOW_PARTITIONS)),
        gres_conf=_text(folder / "gres.conf"),
        topology_conf=_text(folder / "topology.conf") if config.topology != "flat" else "",
        topology_yaml=_text(folder / "topology.yaml") if several else "",
    )
    if not (files.nodes and files.partitions):
        raise Unavailable("scontrol shows no nodes or no partitions")
    names = read_names(ask, allowed_groups(files))
    return SiteCopy(
        files=replace(files, names=names),
        version=config.version,
        slurm_uid=config.user_id,
        hides=config.hides,
        folder=config.optional("StateSaveLocation"),
    )


def copy_state(copy: SiteCopy, now: float) -> SiteCopy:
    """Return the copy with the present state, or with the reason why that cannot be read."""
    try:
        present = present_copied(Path(copy.folder))
    except (Denied, InvalidRequest, OSError) as error:
        problem = getattr(error, "problem", "") or str(error)
        return replace(copy, present=None, no_state=problem, read_at=now)
    return replace(copy, present=present, no_state="", read_at=now)


def stamp(folder: Path) -> StateStamp:
    """Return the times and sizes of a state folder's files. Files that cannot be read are left
    out.
    """
    files = {}
    for name in ("job_state", "node_state", "resv_state", "assoc_mgr_state", "part_state"):
        try:
            status = (folder / name).stat()
        except OSError:
            continue
        files[name] = (status.st_mtime_ns, status.st_size)
    return StateStamp(files)


class _Head(msgspec.Struct):
    """The head of a message.

    copy: the copy without its state. sizes: the size of each file of the state; None where the
    state is that of the message before.
    """

    copy: SiteCopy
    sizes: dict[str, int] | None


def send(stream: IO[bytes], copy: SiteCopy, before: SiteCopy | None) -> None:
    """Write a copy: the sizes, the values as JSON, and the state, unless that is the state of the
    copy before. Raises OSError.
    """
    same = before is not None and before.present is copy.present
    state = copy.present.state if copy.present and not same else {}
    without_state = replace(copy, present=replace(copy.present, state={}) if copy.present else None)
    sizes = None if same else {name: len(content) for name, content in state.items()}
    head = msgspec.json.encode(_Head(without_state, sizes))
    body = b"".join(state.values())
    stream.write(_SIZE.pack(len(head), len(body)) + head + body)
    stream.flush()


def receive(stream: IO[bytes], before: SiteCopy | None) -> SiteCopy | None:
    """Return the next copy, or None at the end of the stream. before: the copy before it."""
    lengths = stream.read(_SIZE.size)
    if len(lengths) < _SIZE.size:
        return None
    head_size, body_size = _SIZE.unpack(lengths)
    if head_size + body_size > _LARGEST:
        return None
    text = stream.read(head_size)
    if len(text) < head_size:
        return None
    head = msgspec.json.decode(text, type=_Head)
    if head.copy.present is None:
        return head.copy
    if head.sizes is None:
        return replace(head.copy, present=before.present if before else None)
    state = {name: stream.read(size) for name, size in head.sizes.items()}
    if sum(map(len, state.values())) < body_size:
        return None
    return replace(head.copy, present=replace(head.copy.present, state=state))


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
