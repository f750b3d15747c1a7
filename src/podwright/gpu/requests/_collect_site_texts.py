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
from podwright.slurm.site.blocking_commands import Ask, ask_slurm
from podwright.slurm.site.releases import release_of

_CONFIGLESS_FOLDERS = (
    Path("/run/slurm/conf"),
    Path("/run/slurm/conf-cache"),
)  # of a configless node
_TOPOLOGY_YAML_START = re.compile(r"(?:%YAML.*\n)?(?:---\s*\n)?- topology:")
_MAX_FILE_BYTES = 64 << 20  # bytes of a file that is read


def live(ask_command: Ask = ask_slurm) -> Texts | None:
    """Return the output of this machine's Slurm; None if there is none or it does not answer.

    Raises FieldNotKnown for a setting that names the place of the others.
    """
    config_text = ask_command(list(SHOW_CONFIG))
    if not config_text:
        return None
    slurm_config = SlurmConfig(config_text)
    conf_folders = [*_CONFIGLESS_FOLDERS]
    if (conf_path := slurm_config.value("SLURM_CONF")).startswith("/"):
        conf_folders.insert(0, Path(conf_path).parent)
    spool_folder = slurm_config.value("SlurmdSpoolDir")
    if spool_folder.startswith("/") and "%" not in spool_folder:
        conf_folders.append(Path(spool_folder) / "conf-cache")
    topology_text = ""
    if slurm_config.topology != "flat":
        topology_text = ask_command(list(SHOW_TOPOLOGY)) or _first_file_text(
            conf_folders, "topology.conf"
        )
    several_topologies = release_of(slurm_config.version).several_topologies
    topology_yaml = ask_command(["scontrol", "show", "topoconf"]) if several_topologies else ""
    return Texts(
        config=config_text,
        nodes=ask_command(list(SHOW_NODES)),
        partitions=ask_command(list(SHOW_PARTITIONS)),
        gres_conf=_first_file_text(conf_folders, "gres.conf"),
        topology_conf=topology_text,
        cgroup_conf=_first_file_text(conf_folders, "cgroup.conf"),
        topology_yaml=topology_yaml if _TOPOLOGY_YAML_START.search(topology_yaml) else "",
    )


def _first_file_text(conf_folders: list[Path], file_name: str) -> str:
    for folder in conf_folders:
        try:
            return (folder / file_name).read_text(errors="replace")
        except OSError:
            continue
    return ""


def bundle(folder: Path) -> Texts:
    """Return the texts in the files of a folder. Raises InvalidRequest if config or nodes are
    missing.
    """
    texts_by_kind: dict[str, str] = {}
    try:
        file_paths = sorted(file_path for file_path in folder.rglob("*") if file_path.is_file())
    except OSError as error:
        raise InvalidRequest(f"{folder}: {error.strerror or error}") from error
    for file_path in file_paths:
        if file_path.stat().st_size > _MAX_FILE_BYTES:
            continue
        try:
            file_text = file_path.read_text()
        except (OSError, UnicodeDecodeError):
            continue
        text_kind = _kind_of_text(file_path.name, file_text)
        if text_kind:
            texts_by_kind.setdefault(text_kind, file_text)
    for text_kind, scontrol_command in (
        ("config", "scontrol show config"),
        ("nodes", "scontrol show node"),
    ):
        if text_kind not in texts_by_kind:
            raise InvalidRequest(
                f"{folder} has no output of `{scontrol_command}`",
                would_work=f"On the cluster: {scontrol_command} > {folder.name}/{text_kind}.txt",
            )
    return Texts(
        config=texts_by_kind["config"],
        nodes=one_line_each(texts_by_kind["nodes"]),
        partitions=one_line_each(texts_by_kind.get("partitions", "")),
        gres_conf=texts_by_kind.get("gres.conf", ""),
        topology_conf=texts_by_kind.get("topology.conf", ""),
        cgroup_conf=texts_by_kind.get("cgroup.conf", ""),
        topology_yaml=texts_by_kind.get("topology.yaml", ""),
    )


def _kind_of_text(file_name: str, file_text: str) -> str:
    """Return which part of a site a file contains; empty if none."""
    for conf_name in ("gres.conf", "cgroup.conf", "topology.conf"):
        if file_name.startswith(conf_name) or file_name.endswith(conf_name):
            return conf_name
    if file_name.endswith("topology.yaml") or _TOPOLOGY_YAML_START.match(file_text):
        return "topology.yaml"
    output_kind = kind_of_output(file_text)
    if output_kind == "topology" or re.match(r"\s*SwitchName=", file_text):
        return "topology.conf"
    return output_kind
