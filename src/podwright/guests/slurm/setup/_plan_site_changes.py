"""The changes that a way of scheduling needs in a site's files. They are computed, then shown, and
only then written.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final

from podwright.errors import InvalidRequest
from podwright.guests.slurm.hooks import slurm_uid, socket_of
from podwright.guests.slurm.service import Site, dump
from podwright.guests.slurm.service._pods_and_licences import JOB_MARK_LICENCE
from podwright.slurm.site.conf_lines import settings
from podwright.slurm.site.edit import OUR_LINE_MARK, append_own_line, changed, joined, undone
from podwright.slurm.site.file_changes import FileChanges
from podwright.slurm.site.files import included_files, read, site_settings

SUBMIT = "job_submit.lua"
FILTER = "cli_filter.lua"
SPANK_PLUGIN = "spank_podwright.so"
#: Modes in which users may type --gres=vipu:... for srun as well.
_CLI_FILTER_MODES = ("plugin", "static")
_LUA_PART_FILE_BY_MODE: Final = {"host-mapping": "mapping.lua", "static": "static.lua"}
#: The SPANK plugin's options for a mode: whether it has to ask, and whether there is an --ipus.
_MODE_PLUGIN_OPTIONS: Final = {
    "host-mapping": " ask=yes options=no prove-all=yes",
    "static": " ask=yes options=no",
    "shared": " ask=yes",
}
_NEW_FILE_COMMENT: Final = f"# There was no such file before.{OUR_LINE_MARK}\n"
#: How many waiting jobs Slurm looks at. With fewer, it would not see jobs that fit further back.
QUEUE_DEPTH = 10000
#: Seconds between two backfill passes with which heterogeneous jobs start soon.
PROPOSED_INTERVAL_S: Final = 2


@dataclass(frozen=True)
class NativePlaces:
    """Where files are. native: the folder of the compiled hook and plugin. folder: our own
    files.
    """

    slurm_conf: Path
    folder: Path
    native: Path

    @property
    def etc(self) -> Path:
        """Slurm's own folder."""
        return self.slurm_conf.parent


def native(
    native_places: NativePlaces, site: Site, *, trusted_uids: Sequence[int] = (0,)
) -> FileChanges:
    """Return the changes for a site's mode. Raises InvalidRequest for a site that they cannot be
    made to.
    """
    conf_text = read(native_places.slurm_conf)
    original_conf = undone(conf_text, source=str(native_places.slurm_conf))
    current_settings = settings(original_conf)
    file_changes = FileChanges()
    wanted_settings = _wanted_conf_settings(native_places, site, current_settings)
    _check_includes(native_places, original_conf, wanted_settings)
    if not site.listen:
        file_changes.folders[Path(site.socket).parent] = slurm_uid(site)
    if site.key:
        file_changes.secrets[Path(site.key)] = slurm_uid(site)
    file_changes.texts[native_places.folder / "native.toml"] = dump(site)
    file_changes.texts[native_places.folder / "hook.conf"] = _hook_conf_text(
        native_places, site, current_settings, trusted_uids
    )
    for hook_name in ("prolog-slurmctld", "epilog-slurmctld"):
        file_changes.links[native_places.folder / hook_name] = (
            native_places.native / "podwright-hook"
        )
    # slurmctld turns the name into lower case.
    cluster_name = _all_settings(native_places.slurm_conf).get("clustername", "").lower()
    _plan_script(
        file_changes,
        native_places.etc / SUBMIT,
        job_submit(site, native_places.etc, trusted_uids, cluster=cluster_name),
    )
    _plan_script(
        file_changes,
        native_places.etc / FILTER,
        cli_filter(native_places.etc) if site.mode in _CLI_FILTER_MODES else None,
    )
    plugstack_path = Path(
        current_settings.get("plugstackconfig", "") or native_places.etc / "plugstack.conf"
    )
    plugin_path = native_places.native / SPANK_PLUGIN
    plugin_arguments = f"host={site.host} port={site.port}"
    if server_socket := socket_of(site.server):
        plugin_arguments += f" socket={server_socket}"
    plugin_arguments += "".join(f" prove={address}" for address in _service_addresses(site))
    plugin_arguments += f" munge={site.munge_socket}" if site.munge_socket else ""
    plugin_arguments += f" key={site.key}" if site.key else ""
    plugin_arguments += "".join(
        f" trust={trusted_uid}" for trusted_uid in _reply_signer_uids(site, trusted_uids)
    )
    plugin_arguments += _MODE_PLUGIN_OPTIONS.get(site.mode, "")
    plugstack_text = read(plugstack_path) if plugstack_path.exists() else _NEW_FILE_COMMENT
    new_file_comment = _NEW_FILE_COMMENT if _NEW_FILE_COMMENT in plugstack_text else ""
    file_changes.texts[plugstack_path] = new_file_comment + append_own_line(
        plugstack_text, f"optional {plugin_path} {plugin_arguments}", str(plugstack_path)
    )
    file_changes.texts[native_places.slurm_conf] = changed(
        conf_text, wanted_settings, str(native_places.slurm_conf)
    )
    return file_changes


def missing(native_places: NativePlaces) -> list[Path]:
    """Return the compiled files that the written ones would name, and that are not there.

    slurmctld does not start when its hooks are dangling links, and srun not without its plugin.
    """
    needed = (native_places.native / "podwright-hook", native_places.native / SPANK_PLUGIN)
    return [path for path in needed if not path.is_file()]


def undo(native_places: NativePlaces) -> FileChanges:
    """Return the changes that undo the set-up. Raises InvalidRequest where Slurm would not start
    after them.
    """
    file_changes = FileChanges()
    conf_text = read(native_places.slurm_conf)
    _check_weights(native_places, conf_text)
    file_changes.texts[native_places.slurm_conf] = undone(
        conf_text, source=str(native_places.slurm_conf)
    )
    plugstack_path = Path(
        settings(conf_text).get("plugstackconfig", "") or native_places.etc / "plugstack.conf"
    )
    if plugstack_path.exists():
        plugstack_text = read(plugstack_path)
        remaining_text = undone(plugstack_text, source=str(plugstack_path))
        file_changes.texts[plugstack_path] = (
            None if _NEW_FILE_COMMENT in plugstack_text and not remaining_text else remaining_text
        )
    _plan_script(file_changes, native_places.etc / SUBMIT, None)
    _plan_script(file_changes, native_places.etc / FILTER, None)
    for name in ("native.toml", "hook.conf", "prolog-slurmctld", "epilog-slurmctld"):
        if (native_places.folder / name).is_symlink() or (native_places.folder / name).exists():
            file_changes.texts[native_places.folder / name] = None
    return file_changes


def advice(slurm_conf: Path, site: Site) -> str:
    """Return what would make heterogeneous jobs start sooner, or "". Raises InvalidRequest.

    It is the site's choice: all of its jobs are looked at as often. bf_max_time is bf_interval
    unless it is set, and would end long passes early.
    """
    parameters = _all_settings(slurm_conf).get("schedulerparameters", "")
    interval_s = _backfill_interval_s(parameters)
    if not site.pods or site.shared or interval_s <= PROPOSED_INTERVAL_S:
        return ""
    longest = "" if "bf_max_time=" in parameters.lower() else f",bf_max_time={interval_s}"
    return (
        f"Heterogeneous jobs start in Slurm's backfill passes, every {interval_s} s here. To start "
        f"them within seconds: SchedulerParameters=bf_interval={PROPOSED_INTERVAL_S}{longest}"
    )


def window(slurm_conf: Path) -> float:
    """Return the seconds that heterogeneous jobs have to start in. Raises InvalidRequest.

    They are two backfill intervals (bf_interval, 30 s by default), at least 10 and at most 60.
    """
    return backfill_window(_all_settings(slurm_conf).get("schedulerparameters", ""))


def backfill_window(scheduler_parameters: str) -> float:
    """Return the same, computed from the value of SchedulerParameters."""
    return float(min(60, max(10, 2 * _backfill_interval_s(scheduler_parameters))))


def _backfill_interval_s(scheduler_parameters: str) -> int:
    texts = [
        parameter.partition("=")[2]
        for parameter in scheduler_parameters.lower().split(",")
        if parameter.startswith("bf_interval=")
    ]
    return int(texts[-1]) if texts and texts[-1].isdecimal() else 30


def _all_settings(slurm_conf: Path) -> dict[str, str]:
    """Return the settings of slurm.conf and of the files that it includes."""
    read(slurm_conf)  # raises the error if it cannot be read
    return site_settings(slurm_conf)


def slurm_user(slurm_conf: Path) -> str:
    """Return SlurmUser, the user that slurmctld and its hooks run as. Raises InvalidRequest."""
    return _all_settings(slurm_conf).get("slurmuser", "") or "root"


def is_ours(script: Path) -> bool:
    """Return whether a script is one that we wrote."""
    return read(script).startswith("-- Podwright's part of ")


def _plan_script(file_changes: FileChanges, script_path: Path, script_text: str | None) -> None:
    """Plan a script of ours in place of the site's own, which is moved aside. script_text: None
    restores the site's.
    """
    site_script = script_path.with_suffix(".site.lua")
    is_own_script = script_path.exists() and is_ours(script_path)
    if script_text is not None:
        if script_path.exists() and not is_own_script:
            file_changes.moves.append((script_path, site_script))
        file_changes.texts[script_path] = script_text
    elif is_own_script and site_script.exists():
        file_changes.moves.append((site_script, script_path))
    elif is_own_script:
        file_changes.texts[script_path] = None


def job_submit(site: Site, folder: Path, trusted_uids: Sequence[int], *, cluster: str) -> str:
    """Return our job_submit.lua: all modes share its head and its end, and each has its own part
    between.

    cluster: the name of the Slurm cluster; no job with devices may leave it.
    """
    script_text = _read_lua_file(SUBMIT)
    if mode_part := _LUA_PART_FILE_BY_MODE.get(site.mode):
        script_head, _, script_rest = script_text.partition("-- @WAY@\n")
        script_text = (
            script_head + _read_lua_file(mode_part) + script_rest.partition("-- @END@\n")[2]
        )
    sizes_by_cluster = {host.cluster: (host.sizes, host.size_multiple) for host in site.hosts}
    partitions_by_size = Counter(partition.size for partition in site.partitions)
    for placeholder, lua_value in {
        "WAY": "",
        "END": "",
        "PODS": _join_lua_lines(
            f'   ["{pod.type}"] = {{ licence = "{pod.licence}", devices = {pod.devices}, '
            f"sizes = {{ {', '.join(str(1 << order) for order in pod.orders)} }}, "
            f"domain = {pod.domain}, "
            f'feature = "{pod.feature}" }},'
            for pod in site.pods
        ),
        "DEFAULT": site.pods[0].type if site.pods else "",
        "SHARED": "true" if site.mode == "shared" else "false",
        "DEFAULT_IPUS": "nil" if site.default_ipus < 0 else str(site.default_ipus),
        "HOSTS": _join_lua_lines(
            f'   ["{host.name}"] = {{ cluster = "{host.cluster}", devices = {host.devices} }},'
            for host in site.hosts
        ),
        "SIZES": _join_lua_lines(
            f'   ["{name}"] = {{ {", ".join(map(str, sizes))}, whole = {multiple} }},'
            for name, (sizes, multiple) in sorted(sizes_by_cluster.items())
        ),
        "STOCK": _join_lua_lines(
            f"   [{partition_size}] = {count},"
            for partition_size, count in sorted(partitions_by_size.items())
        ),
        "UIDS": ", ".join(map(str, trusted_uids)),
        "FOLDER": str(folder),
        "CLUSTER": cluster,
    }.items():
        script_text = script_text.replace(f"-- @{placeholder}@\n", "").replace(
            f"@{placeholder}@", lua_value
        )
    return script_text


def cli_filter(folder: Path) -> str:
    """Return our cli_filter.lua."""
    return _read_lua_file(FILTER).replace("@FOLDER@", str(folder))


def _read_lua_file(file_name: str) -> str:
    return files("podwright.guests.slurm.setup").joinpath(file_name).read_text()


def _join_lua_lines(lua_lines: Iterable[str]) -> str:
    return "\n".join(lua_lines)


def _wanted_conf_settings(
    native_places: NativePlaces, site: Site, current_settings: Mapping[str, str]
) -> dict[str, str]:
    licence_counts = [f"{name}:{total}" for name, total in site.totals().items()]
    wanted_settings = {
        "Licenses": joined(current_settings.get("licenses", ""), *licence_counts),
        "PrologSlurmctld": str(native_places.folder / "prolog-slurmctld"),
        "EpilogSlurmctld": str(native_places.folder / "epilog-slurmctld"),
        "JobSubmitPlugins": joined(current_settings.get("jobsubmitplugins", ""), "lua"),
        "SchedulerParameters": joined(
            current_settings.get("schedulerparameters", ""),
            f"default_queue_depth={QUEUE_DEPTH}",
            f"bf_max_job_test={QUEUE_DEPTH}",
        ),
    }
    if site.mode != "host-mapping":
        # Only the name is needed, so that sbatch accepts --gres=vipu:TYPE. No node has any.
        wanted_settings["GresTypes"] = joined(current_settings.get("grestypes", ""), "vipu")
    if site.mode in _CLI_FILTER_MODES:
        wanted_settings["CliFilterPlugins"] = joined(
            current_settings.get("clifilterplugins", ""), "lua"
        )
    excepted_limits = current_settings.get("propagateresourcelimitsexcept", "")
    # Slurm takes one of the two settings only, so one that the site has itself is kept.
    if (
        "propagateresourcelimits" not in current_settings
        and "MEMLOCK" not in excepted_limits.upper()
    ):
        wanted_settings["PropagateResourceLimitsExcept"] = joined(excepted_limits, "MEMLOCK")
    if "slurmdbd" in current_settings.get("accountingstoragetype", ""):
        counted_licences = [pod.licence for pod in site.pods] + [
            partition.licence for partition in site.partitions
        ]
        tres_names = [f"license/{name}" for name in dict.fromkeys(counted_licences)]
        wanted_settings["AccountingStorageTRES"] = joined(
            current_settings.get("accountingstoragetres", ""), *tres_names
        )
    for licence_name in (count.partition(":")[0] for count in licence_counts):
        if any(
            licence_name == licence.partition(":")[0]
            for licence in current_settings.get("licenses", "").split(",")
        ):
            raise InvalidRequest(
                f"{native_places.slurm_conf}: there is a licence {licence_name} already",
                operation="add Podwright's",
                would_work=f"give the site's own {licence_name} another name, because Podwright "
                "counts its devices by this one",
            )
    return wanted_settings


def _service_addresses(site: Site) -> list[str]:
    """Return where hooks and steps reach the service: on its own host by its Unix socket, elsewhere
    by TCP.
    """
    return [f"unix:{site.socket}", *(f"tcp:{address}" for address in site.doors)]


def _reply_signer_uids(site: Site, trusted_uids: Sequence[int]) -> list[int]:
    """Return the uids, beside root, that may sign the service's replies over TCP."""
    return [uid for uid in trusted_uids if uid] if site.listen else []


def _hook_conf_text(
    native_places: NativePlaces,
    site: Site,
    current_settings: Mapping[str, str],
    trusted_uids: Sequence[int],
) -> str:
    conf_lines = [
        "# Written by podwright slurm configure.",
        *(f"server {address}" for address in _service_addresses(site)),
        *([f"munge-socket {site.munge_socket}"] if site.munge_socket else []),
        *([f"key {site.key}"] if site.key else []),
        *(f"trust {uid}" for uid in _reply_signer_uids(site, trusted_uids)),
        f"licence {JOB_MARK_LICENCE}",
        "prolog-seconds 60",
        "epilog-seconds 600",
    ]
    if log_path := current_settings.get("slurmctldlogfile", ""):
        conf_lines.append(f"log {log_path}")
    scontrol_path = shutil.which("scontrol") or "/usr/bin/scontrol"
    conf_lines += [f"scontrol {scontrol_path}", f"slurm-conf {native_places.slurm_conf}"]
    if site.mode == "host-mapping":
        conf_lines.append(f"drain {scontrol_path}")
    for kind in ("prolog", "epilog"):
        if site_hook := current_settings.get(f"{kind}slurmctld", ""):
            conf_lines.append(f"before-{kind}-slurmctld {site_hook}")
    return "\n".join(conf_lines) + "\n"


def _check_weights(native_places: NativePlaces, conf_text: str) -> None:
    """Raise InvalidRequest where the site's own lines weigh a TRES that only our settings define.

    Without our settings slurmctld does not know that TRES, and does not start.
    """
    original_conf = undone(conf_text, source=str(native_places.slurm_conf))
    tres_lists = [
        settings(settings_text).get("accountingstoragetres", "").lower()
        for settings_text in (conf_text, original_conf)
    ]
    own_tres = set(tres_lists[0].split(",")) - set(tres_lists[1].split(","))
    for conf_line in original_conf.splitlines():
        setting_text = conf_line.partition("#")[0].lower()
        weighted_own_tres = [
            name for name in sorted(own_tres) if name and f"{name}=" in setting_text
        ]
        if weighted_own_tres:
            raise InvalidRequest(
                f"{native_places.slurm_conf} weighs {weighted_own_tres[0]}, which goes: "
                f"{conf_line.strip()[:200]}",
                operation="take Podwright's settings back",
                would_work="take that out first, else slurmctld does not start",
            )


def _check_includes(
    native_places: NativePlaces, original_conf: str, wanted_settings: Mapping[str, str]
) -> None:
    """Raise InvalidRequest where an included file sets what we would have to change."""
    wanted_keys = {key.lower() for key in wanted_settings}
    for included_path in included_files(native_places.slurm_conf):
        overridden_keys = [key for key in settings(read(included_path)) if key in wanted_keys]
        if overridden_keys:
            raise InvalidRequest(
                f"{included_path}, included by {native_places.slurm_conf}, sets "
                f"{', '.join(overridden_keys)}",
                operation="configure Slurm",
                would_work=f"move those lines into {native_places.slurm_conf}",
            )
