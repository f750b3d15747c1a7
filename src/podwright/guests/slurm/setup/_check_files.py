"""Checks that Slurm runs with what `configure` wrote, and that its hooks find the service.

They need no job. What they find explains why the jobs of the other checks fail.
"""

from __future__ import annotations

import http.client
import os
import pwd
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from podwright.errors import FieldNotKnown, InvalidRequest
from podwright.guests.slurm.hooks import slurm_uid
from podwright.guests.slurm.setup._native import SUBMIT, NativePlaces, backfill_window, native
from podwright.guests.slurm.setup._served_cluster import Check, ServedCluster, is_root
from podwright.slurm.reader import SHOW_CONFIG, SHOW_LICENCES, SlurmConfig, read_licences
from podwright.slurm.site.files import read

_TRUSTED: Final = re.compile(r"^local trusted = \{ ([\d, ]+) \}", re.M)


def promises(cluster: ServedCluster, folder: Path) -> dict[str, Check]:
    """Return what must hold before any job is tried, each with its check."""
    checks: dict[str, Check] = {
        "Slurm runs with what configure wrote": partial(_configured, cluster, folder),
    }
    if cluster.site.pods and not cluster.site.shared:
        checks["heterogeneous jobs have time to start"] = partial(_window, cluster)
    if is_root():
        checks["its files are as configure writes them"] = partial(_written, cluster, folder)
    if is_root() or os.geteuid() == slurm_uid(cluster.site):
        checks["Slurm's hooks reach the service"] = partial(_reached, cluster)
    return checks


def _running(cluster: ServedCluster) -> SlurmConfig:
    """Return Slurm's settings in force."""
    return SlurmConfig("\n".join(cluster.lines(*SHOW_CONFIG)))


def _configured(cluster: ServedCluster, folder: Path) -> str:
    now = _running(cluster)
    if not now:
        return cluster.ask(*SHOW_CONFIG)[1][:200] or "scontrol printed nothing"
    for key, name in (
        ("PrologSlurmctld", "prolog-slurmctld"),
        ("EpilogSlurmctld", "epilog-slurmctld"),
    ):
        hook = str(folder / name)
        if hook not in now.hooks(key):
            configured = ", ".join(now.hooks(key)) or "nothing"
            return f"{key} is {configured} instead of {hook}: configure --write, restart slurmctld"
    try:
        if "lua" not in now.names("JobSubmitPlugins"):
            return "JobSubmitPlugins lacks lua: configure --write, restart slurmctld"
        return _counted(cluster)
    except FieldNotKnown as error:
        return error.problem


def _counted(cluster: ServedCluster) -> str:
    """Check that Slurm has all licences of the site, with the right totals. Raises
    FieldNotKnown.
    """
    licences = read_licences("\n".join(cluster.lines(*SHOW_LICENCES)))
    total = {licence_count.name: licence_count.total for licence_count in licences}
    for name, count in cluster.site.totals().items():
        if total.get(name) != count:
            return (
                f"Slurm has {total.get(name, 0)} of licence {name}, the site {count}: "
                "configure --write, restart slurmctld"
            )
    return ""


def _written(cluster: ServedCluster, folder: Path) -> str:
    """Check that `configure` would change nothing: no line of ours was edited, and no script is of
    another release.

    The order of the lines in a file does not matter.
    """
    try:
        conf = Path(_running(cluster).value("SLURM_CONF"))
    except FieldNotKnown as error:
        return error.problem
    hook, script = folder / "prolog-slurmctld", conf.parent / SUBMIT
    if not hook.is_symlink():
        return f"{hook} is not podwright-hook: configure --write"
    try:
        trusted = _TRUSTED.search(read(script))
        uids = [int(uid) for uid in trusted[1].split(",")] if trusted else [0]
        places = NativePlaces(slurm_conf=conf, folder=folder, native=hook.readlink().parent)
        plan = native(places, cluster.site, trusted=uids)
        for path, text in plan.texts.items():
            if path.name != "native.toml" and _lines(path) != sorted((text or "").splitlines()):
                return f"{path} is not as configure writes it, which shows the difference"
    except InvalidRequest as error:
        return error.problem + (f": {error.would_work}" if error.would_work else "")
    links = [path for path, to in plan.links.items() if not path.exists() or path.readlink() != to]
    return f"{links[0]} is not podwright-hook: configure --write" if links else ""


def _lines(path: Path) -> list[str]:
    return sorted(read(path).splitlines()) if path.exists() else []


def _window(cluster: ServedCluster) -> str:
    try:
        least = backfill_window(_running(cluster).value("SchedulerParameters"))
    except FieldNotKnown as error:
        return error.problem
    if cluster.site.window_s >= least:
        return ""
    return (
        f"they have {cluster.site.window_s:g} s, and with Slurm's bf_interval need {least:g}: "
        "configure --write, restart podwright slurm serve"
    )


def _reached(cluster: ServedCluster) -> str:
    """Check that the service answers on its socket, as SlurmUser, because PrologSlurmctld and
    EpilogSlurmctld run as SlurmUser.
    """
    site = cluster.site
    if site.listen and not Path(site.socket).parent.exists():
        return ""  # the service is on another host: the checks with jobs show whether it is reached
    who = pwd.getpwuid(slurm_uid(site)).pw_name
    try:
        with _as_user(slurm_uid(site)), socket.socket(socket.AF_UNIX) as door:
            door.settimeout(cluster.wait_s)
            door.connect(site.socket)
            connection = http.client.HTTPConnection("podwright")
            connection.sock = door
            connection.request("GET", "/slurm.v1/State")
            answer = connection.getresponse()
            text = answer.read(200).decode(errors="replace")
    except http.client.HTTPException as error:
        return f"{site.socket}: what answers there is no service: {error!r}"
    except OSError as error:
        problem = (error.strerror or str(error)).lower()
        todo = "is podwright slurm serve running?"
        if isinstance(error, PermissionError):
            todo = "serve as root or SlurmUser, in a folder that configure --write made"
        return f"{site.socket}: {problem} for {who}: {todo}"
    return "" if answer.status == 200 else text


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
