"""Finds what is known of a site: from the Slurm of this machine, or from files that somebody sent.

A folder of files is recognised by content, so that their names do not matter: the output of
`scontrol show config`, `show node`, `show partition` and `show topology`. gres.conf, cgroup.conf,
topology.conf and topology.yaml have their own names. Without output of scontrol, slurm.conf says
the same: a twin that starts with it is asked what scontrol would show.
"""

from __future__ import annotations

import re
from pathlib import Path

from podwright.errors import InvalidRequest, Unavailable
from podwright.gpu.requests._read_site import Texts
from podwright.gpu.requests._site_conf_files import read_site_files
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
from podwright.slurm.site.conf_lines import settings
from podwright.slurm.site.releases import SlurmVersion, release_of
from podwright.slurm.twin import Twin, find_slurm

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


def bundle(folder: Path, version: SlurmVersion | None = None) -> Texts:
    """Return the texts in the files of a folder, or of a file slurm.conf and those beside it.
    version: that of the slurmctld that reads slurm.conf; None: that of this machine.

    Raises InvalidRequest if neither slurm.conf nor the output about config and nodes is there, and
    Unavailable if no slurmctld here starts with slurm.conf.
    """
    texts_by_kind: dict[str, str] = {}
    if folder.is_file():
        return _texts_of_conf(folder, version)
    try:
        file_paths = sorted(path for path in folder.rglob("*") if path.is_file())
    except OSError as error:
        raise InvalidRequest(f"{folder}: {error.strerror or error}") from error
    if not file_paths:
        raise InvalidRequest(f"{folder} has no file")
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
    conf_paths = [path for path in file_paths if path.name == "slurm.conf"]
    if conf_paths and "config" not in texts_by_kind:
        return _texts_of_conf(conf_paths[0], version)
    for text_kind, scontrol_command in (
        ("config", "scontrol show config"),
        ("nodes", "scontrol show node"),
    ):
        if text_kind not in texts_by_kind:
            raise InvalidRequest(
                f"{folder} has no output of `{scontrol_command}`",
                would_work="Copy slurm.conf and gres.conf into it; or, on the cluster: "
                f"{scontrol_command} > {folder.name}/{text_kind}.txt",
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


def _texts_of_conf(slurm_conf: Path, version: SlurmVersion | None) -> Texts:
    site_files = read_site_files(slurm_conf)
    slurm_install = find_slurm(version)
    if slurm_install is None:
        raise Unavailable(
            "there is no slurmctld on this machine that could read slurm.conf",
            would_work="Install slurmctld (Debian: slurmctld), or send what `scontrol show "
            "config`, `show node` and `show partition` print",
        )
    cgroup_path = slurm_conf.with_name("cgroup.conf")
    with Twin(site_files, slurm_install) as twin:
        return Texts(
            config=_with_own_settings(twin.show(*SHOW_CONFIG[1:]), site_files.slurm_conf),
            nodes=twin.show(*SHOW_NODES[1:]),
            partitions=twin.show(*SHOW_PARTITIONS[1:]),
            gres_conf=site_files.gres_conf,
            topology_conf=site_files.topology_conf,
            topology_yaml=site_files.topology_yaml,
            cgroup_conf=cgroup_path.read_text(errors="replace") if cgroup_path.exists() else "",
            slurm_conf=site_files.slurm_conf,
        )


def _with_own_settings(config_text: str, conf_text: str) -> str:
    """Return a twin's configuration with those settings of the site that no twin takes over."""
    site_settings = settings(conf_text)
    for key in ("AccountingStorageEnforce", "JobSubmitPlugins", "CliFilterPlugins"):
        if own_value := site_settings.get(key.lower()):
            config_text = re.sub(rf"(?m)^({key}\s*=).*", rf"\1 {own_value}", config_text)
    return config_text


def _kind_of_text(file_name: str, file_text: str) -> str:
    """Return which part of a site a file contains; empty if none."""
    for conf_name in ("gres.conf", "cgroup.conf", "topology.conf"):
        if file_name.startswith(conf_name) or file_name.endswith(conf_name):
            return conf_name
    if file_name.endswith("topology.yaml") or _TOPOLOGY_YAML_START.match(file_text):
        return "topology.yaml"
    kind = kind_of_output(file_text)
    if kind == "topology" or re.match(r"\s*SwitchName=", file_text):
        return "topology.conf"
    return kind
