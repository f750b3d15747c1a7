"""Finds what is known of a site: from the Slurm of this machine, or from files that somebody sent.

A folder of files is recognised by content, so that their names do not matter: the output of
`scontrol show config`, `show node`, `show partition` and `show topology`. gres.conf, cgroup.conf,
topology.conf and topology.yaml have their own names.
"""

from __future__ import annotations

import re
from pathlib import Path

from podwright.errors import InvalidRequest
from podwright.gpu.requests._read_site import Texts
from podwright.slurm.reader import (
    SHOW_CONFIG,
    SHOW_NODES,
    SHOW_PARTITIONS,
    SHOW_TOPOLOGY,
    SlurmConfig,
    kind_of_output,
    one_line_each,
)
from podwright.slurm.site.ask import Ask, ask_slurm
from podwright.slurm.site.releases import release_of

_COPIES = (Path("/run/slurm/conf"), Path("/run/slurm/conf-cache"))  # of a configless node
_SEVERAL = re.compile(r"(?:%YAML.*\n)?(?:---\s*\n)?- topology:")
_LARGEST = 64 << 20  # bytes of a file that is read


def live(ask: Ask = ask_slurm) -> Texts | None:
    """Return the output of this machine's Slurm; None if there is none or it does not answer.

    Raises FieldNotKnown for a setting that names the place of the others.
    """
    config = ask(list(SHOW_CONFIG))
    if not config:
        return None
    settings = SlurmConfig(config)
    folders = [*_COPIES]
    if (conf := settings.value("SLURM_CONF")).startswith("/"):
        folders.insert(0, Path(conf).parent)
    spool = settings.value("SlurmdSpoolDir")
    if spool.startswith("/") and "%" not in spool:
        folders.append(Path(spool) / "conf-cache")
    topology = ""
    if settings.topology != "flat":
        topology = ask(list(SHOW_TOPOLOGY)) or _first(folders, "topology.conf")
    several = release_of(settings.version).several_topologies
    yaml = ask(["scontrol", "show", "topoconf"]) if several else ""
    return Texts(
        config=config,
        nodes=ask(list(SHOW_NODES)),
        partitions=ask(list(SHOW_PARTITIONS)),
        gres_conf=_first(folders, "gres.conf"),
        topology_conf=topology,
        cgroup_conf=_first(folders, "cgroup.conf"),
        topology_yaml=yaml if _SEVERAL.search(yaml) else "",
    )


def _first(folders: list[Path], name: str) -> str:
    for folder in folders:
        try:
            return (folder / name).read_text(errors="replace")
        except OSError:
            continue
    return ""


def bundle(folder: Path) -> Texts:
    """Return the texts in the files of a folder. Raises InvalidRequest if config or nodes are
    missing.
    """
    texts: dict[str, str] = {}
    try:
        files = sorted(path for path in folder.rglob("*") if path.is_file())
    except OSError as error:
        raise InvalidRequest(f"{folder}: {error.strerror or error}") from error
    for path in files:
        if path.stat().st_size > _LARGEST:
            continue
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError):
            continue
        kind = _kind_of_text(path.name, text)
        if kind:
            texts.setdefault(kind, text)
    for kind, command in (("config", "scontrol show config"), ("nodes", "scontrol show node")):
        if kind not in texts:
            raise InvalidRequest(
                f"{folder} has no output of `{command}`",
                would_work=f"On the cluster: {command} > {folder.name}/{kind}.txt",
            )
    return Texts(
        config=texts["config"],
        nodes=one_line_each(texts["nodes"]),
        partitions=one_line_each(texts.get("partitions", "")),
        gres_conf=texts.get("gres.conf", ""),
        topology_conf=texts.get("topology.conf", ""),
        cgroup_conf=texts.get("cgroup.conf", ""),
        topology_yaml=texts.get("topology.yaml", ""),
    )


def _kind_of_text(name: str, text: str) -> str:
    """Return which part of a site a file contains; empty if none."""
    for conf in ("gres.conf", "cgroup.conf", "topology.conf"):
        if name.startswith(conf) or name.endswith(conf):
            return conf
    if name.endswith("topology.yaml") or _SEVERAL.match(text):
        return "topology.yaml"
    kind = kind_of_output(text)
    if kind == "topology" or re.match(r"\s*SwitchName=", text):
        return "topology.conf"
    return kind
