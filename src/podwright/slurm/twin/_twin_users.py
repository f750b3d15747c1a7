"""The user whose request a twin makes, and the passwd and group files of its Slurm. Pure, except
that it reads this machine's own databases.
"""

from __future__ import annotations

import base64
import os
import pwd

from podwright.slurm.twin._cell import SLURM_USER, CellUser
from podwright.slurm.twin._values import SiteNames

_NOBODY = 65534
_FIRST_GROUP = 0x50000000  # the groups of AllowGroups, in the twin alone


def account_of(uid: int | None) -> CellUser:
    """Return a user and the user's primary group. None: the caller, or, for root, a user without
    rights.
    """
    if uid is None:
        uid = os.getuid() or _NOBODY
    try:
        gid = pwd.getpwuid(uid).pw_gid
    except KeyError:
        gid = uid
    return CellUser((uid, gid))


def user_files(account: CellUser, names: SiteNames) -> dict[str, str]:
    """Return etc/passwd and etc/group in base64, as the guardian takes files.

    They have root, Slurm's own user, the user who asks, and the users that the site's Slurm looks
    up by name.
    """
    uid, gid = account
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = f"user{uid}"
    known = {name: (uid, gid)} if uid not in (0, SLURM_USER) else {}
    for other, number in names.users.items():
        if number not in (0, SLURM_USER, uid):
            known.setdefault(other, (number, number))
    rows = ["root:x:0:0::/:/bin/sh", f"slurm:x:{SLURM_USER}:{SLURM_USER}::/:/bin/sh"]
    rows += [f"{user}:x:{u}:{g}::/:/bin/sh" for user, (u, g) in known.items()]
    groups = ["root:x:0:", f"slurm:x:{SLURM_USER}:"]
    # The numbers of groups do not matter, because each group names its members.
    groups += [
        f"{group}:x:{_FIRST_GROUP + index}:{','.join(m for m in members if m in known)}"
        for index, (group, members) in enumerate(names.groups.items())
    ]
    if known and name not in names.groups:
        groups.append(f"{name}:x:{gid}:")
    texts = {"etc/passwd": "\n".join(rows) + "\n", "etc/group": "\n".join(groups) + "\n"}
    return {path: base64.b64encode(text.encode()).decode() for path, text in texts.items()}
