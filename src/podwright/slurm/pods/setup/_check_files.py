"""Proofs that Slurm runs with what `configure` wrote, and that its hooks find the service.

They need no job: what they find says in words why the jobs of the other proofs fail.
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

from podwright.errors import InvalidRequest
from podwright.slurm.pods.service import slurm_uid
from podwright.slurm.pods.setup._check_cluster import Check, ServedCluster, is_root
from podwright.slurm.pods.setup._native import SUBMIT, NativePlaces, backfill_window, native
from podwright.slurm.site.files import read

_TRUSTED: Final = re.compile(r"^local trusted = \{ ([\d, ]+) \}", re.M)
_FIELD: Final = re.compile(r"^(\w+)(?:\[\d+\])?\s*=\s*(.*?)\s*$")


def promises(cluster: ServedCluster, folder: Path) -> dict[str, Check]:
    """What must be so before any job is tried."""
    found: dict[str, Check] = {
        "Slurm runs with what configure wrote": partial(_configured, cluster, folder),
    }
    if cluster.site.pods and not cluster.site.shared:
        found["heterogeneous jobs have time to start"] = partial(_window, cluster)
    if is_root():
        found["its files are as configure writes them"] = partial(_written, cluster, folder)
    if is_root() or os.geteuid() == slurm_uid(cluster.site):
        found["Slurm's hooks reach the service"] = partial(_reached, cluster)
    return found


def _running(cluster: ServedCluster) -> dict[str, list[str]]:
    """Slurm's settings in force by lower-case key; newer ones have several of some."""
    found: dict[str, list[str]] = {}
    for line in cluster.lines("scontrol", "show", "config"):
        if said := _FIELD.match(line):
            found.setdefault(said[1].lower(), []).append(said[2])
    return found


def _configured(cluster: ServedCluster, folder: Path) -> str:
    now = _running(cluster)
    if not now:
        return cluster.ask("scontrol", "show", "config")[1][:200] or "scontrol says nothing"
    for key, name in (
        ("PrologSlurmctld", "prolog-slurmctld"),
        ("EpilogSlurmctld", "epilog-slurmctld"),
    ):
        hook = str(folder / name)
        if hook not in now.get(key.lower(), []):
            there = ", ".join(now.get(key.lower(), [])) or "nothing"
            return f"{key} is {there} instead of {hook}: configure --write, restart slurmctld"
    if "lua" not in ",".join(now.get("jobsubmitplugins", [])).split(","):
        return "JobSubmitPlugins lacks lua: configure --write, restart slurmctld"
    return _counted(cluster)


def _counted(cluster: ServedCluster) -> str:
    """Slurm has all licences of the site, as many as there are."""
    total: dict[str, int] = {}
    for line in cluster.lines("scontrol", "--oneliner", "show", "licenses"):
        words = dict(word.partition("=")[::2] for word in line.split())
        if "LicenseName" in words:
            total[words["LicenseName"]] = int(words.get("Total", "0"))
    for name, count in cluster.site.totals().items():
        if total.get(name) != count:
            return (
                f"Slurm has {total.get(name, 0)} of licence {name}, the site {count}: "
                "configure --write, restart slurmctld"
            )
    return ""


def _written(cluster: ServedCluster, folder: Path) -> str:
    """`configure` would change nothing: no line of ours was edited, no script is of another
    release. Where lines of a file stand does not matter."""
    conf = Path(*_running(cluster).get("slurm_conf", [])[:1])
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
    now = _running(cluster).get("schedulerparameters", [""])
    least = backfill_window(",".join(now))
    if cluster.site.window_s >= least:
        return ""
    return (
        f"they have {cluster.site.window_s:g} s, and with Slurm's bf_interval need {least:g}: "
        "configure --write, restart podwright slurm serve"
    )


def _reached(cluster: ServedCluster) -> str:
    """PrologSlurmctld and EpilogSlurmctld run as SlurmUser: as that user the door is tried."""
    site = cluster.site
    if site.listen and not Path(site.socket).parent.exists():
        return ""  # the service is on another host: steps and hooks show what comes of that
    who = pwd.getpwuid(slurm_uid(site)).pw_name
    try:
        with _as_user(slurm_uid(site)), socket.socket(socket.AF_UNIX) as door:
            door.settimeout(cluster.wait_s)
            door.connect(site.socket)
            asked = http.client.HTTPConnection("podwright")
            asked.sock = door
            asked.request("GET", "/slurm.v1/State")
            answer = asked.getresponse()
            said = answer.read(200).decode(errors="replace")
    except http.client.HTTPException as error:
        return f"{site.socket}: what answers there is no service: {error!r}"
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        todo = "is podwright slurm serve running?"
        if isinstance(error, PermissionError):
            todo = "serve as root or SlurmUser, in a folder that configure --write made"
        return f"{site.socket}: {why} for {who}: {todo}"
    return "" if answer.status == 200 else said


@contextmanager
def _as_user(uid: int) -> Iterator[None]:
    """What is opened within is opened as this user, where we are root."""
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
