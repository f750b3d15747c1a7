"""Where what is known of a site comes from: this machine's Slurm, or files that somebody sent.

A folder of files is read by what is in them, so that it does not matter what they are called:
the output of `scontrol show config`, `show node`, `show partition` and `show topology`, and
gres.conf, cgroup.conf, topology.conf and topology.yaml under their own names.
"""

from __future__ import annotations

import re
from pathlib import Path

from podwright.errors import InvalidRequest
from podwright.slurm.gpus.requests._read_site import Texts, settings
from podwright.slurm.site.ask import Ask, ask_slurm
from podwright.slurm.site.releases import OLDEST, read_version, release_of

_COPIES = (Path("/run/slurm/conf"), Path("/run/slurm/conf-cache"))  # of a configless node
_SEVERAL = re.compile(r"(?:%YAML.*\n)?(?:---\s*\n)?- topology:")
_LARGEST = 64 << 20  # bytes of a file that is read


def live(ask: Ask = ask_slurm) -> Texts | None:
    """What the Slurm of this machine says; None where there is none or it does not answer."""
    config = ask(["scontrol", "show", "config"])
    if not config:
        return None
    said = settings(config)
    folders = [*_COPIES]
    if said.get("SLURM_CONF", "").startswith("/"):
        folders.insert(0, Path(said["SLURM_CONF"]).parent)
    spool = said.get("SlurmdSpoolDir", "")
    if spool.startswith("/") and "%" not in spool:
        folders.append(Path(spool) / "conf-cache")
    topology = ""
    if any(word in said.get("TopologyPlugin", "") for word in ("tree", "block", "ring", "torus")):
        topology = ask(["scontrol", "show", "topology"]) or _first(folders, "topology.conf")
    several = release_of(read_version(config) or OLDEST).several_topologies
    yaml = ask(["scontrol", "show", "topoconf"]) if several else ""
    return Texts(
        config=config,
        nodes=ask(["scontrol", "--oneliner", "show", "node"]),
        partitions=ask(["scontrol", "--oneliner", "show", "partition"]),
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
    """What the files of a folder say. Raises InvalidRequest where config or nodes are missing."""
    found: dict[str, str] = {}
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
        what = _what(path.name, text)
        if what:
            found.setdefault(what, text)
    for what, command in (("config", "scontrol show config"), ("nodes", "scontrol show node")):
        if what not in found:
            raise InvalidRequest(
                f"{folder} has no output of `{command}`",
                would_work=f"On the cluster: {command} > {folder.name}/{what}.txt",
            )
    return Texts(
        config=found["config"],
        nodes=one_lines(found["nodes"]),
        partitions=one_lines(found.get("partitions", "")),
        gres_conf=found.get("gres.conf", ""),
        topology_conf=found.get("topology.conf", ""),
        cgroup_conf=found.get("cgroup.conf", ""),
        topology_yaml=found.get("topology.yaml", ""),
    )


def _what(name: str, text: str) -> str:
    """Which part of a site a file is; empty where it is none."""
    for conf in ("gres.conf", "cgroup.conf", "topology.conf"):
        if name.startswith(conf) or name.endswith(conf):
            return conf
    if name.endswith("topology.yaml") or _SEVERAL.match(text):
        return "topology.yaml"
    if re.search(r"^SLURM_VERSION\s*=", text, re.M):
        return "config"
    if re.match(r"\s*NodeName=\S+\s+(Arch|CoresPerSocket)=", text):
        return "nodes"
    if re.match(r"\s*PartitionName=\S+\s+AllowGroups=", text):
        return "partitions"
    if re.match(r"\s*SwitchName=", text):
        return "topology.conf"
    return ""


def one_lines(text: str) -> str:
    """As `scontrol --oneliner` has it: every record on a line of its own."""
    joined: list[str] = []
    for line in text.splitlines():
        if line[:1].isspace() and joined:
            joined[-1] += " " + line.strip()
        elif line.strip():
            joined.append(line.strip())
    return "\n".join(joined)
