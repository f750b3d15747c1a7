"""The user whose request a twin makes, and the passwd and group files of its Slurm. Pure, except
that it reads this machine's own databases.
"""

from __future__ import annotations

import base64
import os
import pwd

from podwright.slurm.twin._twin_process_client import SLURM_UID, CellUser
from podwright.slurm.twin._twin_types import SiteNames

_NOBODY_ID = 65534
_FIRST_GROUP_ID = 0x50000000  # the groups of AllowGroups, in the twin alone


def account_of(uid: int | None) -> CellUser:
    """Return a user and the user's primary group. None: the caller, or, for root, a user without
    rights.
    """
    if uid is None:
        uid = os.getuid() or _NOBODY_ID
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
        user_name = pwd.getpwuid(uid).pw_name
    except KeyError:
        user_name = f"user{uid}"
    ids_by_user = {user_name: (uid, gid)} if uid not in (0, SLURM_UID) else {}
    for other_user, other_uid in names.users.items():
        if other_uid not in (0, SLURM_UID, uid):
            ids_by_user.setdefault(other_user, (other_uid, other_uid))
    passwd_rows = ["root:x:0:0::/:/bin/sh", f"slurm:x:{SLURM_UID}:{SLURM_UID}::/:/bin/sh"]
    passwd_rows += [
        f"{user}:x:{row_uid}:{row_gid}::/:/bin/sh"
        for user, (row_uid, row_gid) in ids_by_user.items()
    ]
    group_rows = ["root:x:0:", f"slurm:x:{SLURM_UID}:"]
    # The numbers of groups do not matter, because each group names its members.
    for gid, (group, members) in enumerate(names.groups.items(), _FIRST_GROUP_ID):
        known_members = [member for member in members if member in ids_by_user]
        group_rows.append(f"{group}:x:{gid}:{','.join(known_members)}")
    if ids_by_user and user_name not in names.groups:
        group_rows.append(f"{user_name}:x:{gid}:")
    file_texts = {
        "etc/passwd": "\n".join(passwd_rows) + "\n",
        "etc/group": "\n".join(group_rows) + "\n",
    }
    return {path: base64.b64encode(text.encode()).decode() for path, text in file_texts.items()}
