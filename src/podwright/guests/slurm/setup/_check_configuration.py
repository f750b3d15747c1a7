"""Checks that Slurm runs with what `configure` wrote, and that its hooks find the service.

They need no job. What they find explains why the jobs of the other checks fail.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from podwright.errors import FieldNotKnown, InvalidRequest
from podwright.guests.slurm.hooks import slurm_uid
from podwright.guests.slurm.setup._check_environment import Check, ServedCluster, is_root
from podwright.guests.slurm.setup._plan_site_changes import (
    SUBMIT,
    NativePlaces,
    backfill_window,
    native,
)
from podwright.http import NotHttp, ask
from podwright.slurm.reader import SHOW_CONFIG, SHOW_LICENCES, SlurmConfig, read_licences
from podwright.slurm.site.files import read

_TRUSTED_UIDS_LINE: Final = re.compile(r"^local trusted = \{ ([\d, ]+) \}", re.M)


def promises(cluster: ServedCluster, folder: Path) -> dict[str, Check]:
    """Return what must hold before any job is tried, each with its check."""
    checks: dict[str, Check] = {
        "Slurm runs with what configure wrote": partial(_check_configured, cluster, folder),
    }
    if cluster.site.pods and not cluster.site.shared:
        checks["heterogeneous jobs have time to start"] = partial(_window, cluster)
    if is_root():
        checks["its files are as configure writes them"] = partial(
            _check_files_unchanged, cluster, folder
        )
    if is_root() or os.geteuid() == slurm_uid(cluster.site):
        checks["Slurm's hooks reach the service"] = partial(_check_service_reached, cluster)
    return checks


def _running_slurm_config(cluster: ServedCluster) -> SlurmConfig:
    """Return Slurm's settings in force."""
    return SlurmConfig("\n".join(cluster.lines(*SHOW_CONFIG)))


def _check_configured(cluster: ServedCluster, folder: Path) -> str:
    running_config = _running_slurm_config(cluster)
    if not running_config:
        return cluster.ask(*SHOW_CONFIG)[1][:200] or "scontrol printed nothing"
    for hook_setting, hook_name in (
        ("PrologSlurmctld", "prolog-slurmctld"),
        ("EpilogSlurmctld", "epilog-slurmctld"),
    ):
        hook_path = str(folder / hook_name)
        if hook_path not in running_config.hooks(hook_setting):
            configured_hooks = ", ".join(running_config.hooks(hook_setting)) or "nothing"
            return (
                f"{hook_setting} is {configured_hooks} instead of {hook_path}: configure --write, "
                "restart slurmctld"
            )
    try:
        if "lua" not in running_config.names("JobSubmitPlugins"):
            return "JobSubmitPlugins lacks lua: configure --write, restart slurmctld"
        return _check_licence_totals(cluster)
    except FieldNotKnown as error:
        return error.problem


def _check_licence_totals(cluster: ServedCluster) -> str:
    """Check that Slurm has all licences of the site, with the right totals. Raises
    FieldNotKnown.
    """
    licences = read_licences("\n".join(cluster.lines(*SHOW_LICENCES)))
    totals_by_licence = {count.name: count.total for count in licences}
    for licence_name, site_total in cluster.site.totals().items():
        if totals_by_licence.get(licence_name) != site_total:
            return (
                f"Slurm has {totals_by_licence.get(licence_name, 0)} of licence {licence_name}, "
                f"the site {site_total}: "
                "configure --write, restart slurmctld"
            )
    return ""


def _check_files_unchanged(cluster: ServedCluster, folder: Path) -> str:
    """Check that `configure` would change nothing: no line of ours was edited, and no script is of
    another release.

    The order of the lines in a file does not matter.
    """
    try:
        slurm_conf = Path(_running_slurm_config(cluster).value("SLURM_CONF"))
    except FieldNotKnown as error:
        return error.problem
    hook_path, submit_script = folder / "prolog-slurmctld", slurm_conf.parent / SUBMIT
    if not hook_path.is_symlink():
        return f"{hook_path} is not podwright-hook: configure --write"
    try:
        trusted_match = _TRUSTED_UIDS_LINE.search(read(submit_script))
        trusted_uids = [int(uid) for uid in trusted_match[1].split(",")] if trusted_match else [0]
        native_places = NativePlaces(
            slurm_conf=slurm_conf, folder=folder, native=hook_path.readlink().parent
        )
        file_changes = native(native_places, cluster.site, trusted_uids=trusted_uids)
        for path, text in file_changes.texts.items():
            if path.name != "native.toml" and _sorted_file_lines(path) != sorted(
                (text or "").splitlines()
            ):
                return f"{path} is not as configure writes it, which shows the difference"
    except InvalidRequest as error:
        return error.problem + (f": {error.would_work}" if error.would_work else "")
    wrong_links = [
        path
        for path, target in file_changes.links.items()
        if not path.exists() or path.readlink() != target
    ]
    return f"{wrong_links[0]} is not podwright-hook: configure --write" if wrong_links else ""


def _sorted_file_lines(path: Path) -> list[str]:
    return sorted(read(path).splitlines()) if path.exists() else []


def _window(cluster: ServedCluster) -> str:
    try:
        seconds = backfill_window(_running_slurm_config(cluster).value("SchedulerParameters"))
    except FieldNotKnown as error:
        return error.problem
    if cluster.site.window_s >= seconds:
        return ""
    return (
        f"they have {cluster.site.window_s:g} s, and with Slurm's bf_interval need "
        f"{seconds:g}: configure --write, restart podwright slurm serve"
    )


def _check_service_reached(cluster: ServedCluster) -> str:
    """Check that the service answers on its socket, as SlurmUser, because PrologSlurmctld and
    EpilogSlurmctld run as SlurmUser.
    """
    site = cluster.site
    if site.listen and not Path(site.socket).parent.exists():
        return ""  # the service is on another host: the checks with jobs show whether it is reached
    user_name = pwd.getpwuid(slurm_uid(site)).pw_name
    try:
        with _as_user(slurm_uid(site)):
            answer = ask(site.socket, "GET", "/slurm.v1/State", timeout=cluster.wait_s, limit=200)
    except NotHttp as error:
        return f"{site.socket}: what answers there is no service: {error}"
    except OSError as error:
        problem = (error.strerror or str(error)).lower()
        advice = "is podwright slurm serve running?"
        if isinstance(error, PermissionError):
            advice = "serve as root or SlurmUser, in a folder that configure --write made"
        return f"{site.socket}: {problem} for {user_name}: {advice}"
    return "" if answer.status == 200 else answer.content.decode(errors="replace")


@contextmanager
def _as_user(uid: int) -> Iterator[None]:
    """Open files within as this user, if we are root."""
    if not is_root() or uid == 0:
        yield
        return
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(pwd.getpwuid(uid).pw_gid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)
