"""The names that a site's Slurm knows: the users of its associations, and the members of the groups
of partitions.

slurmctld looks names up in passwd and group. A twin has files of its own there, with these rows.
"""

from __future__ import annotations

import grp
import pwd
import re
from collections.abc import Iterable

from podwright.slurm.site.blocking_commands import Ask
from podwright.slurm.twin._twin_types import SiteNames

#: Prints a line for each user of an association: `UserName=alice(1000) DefAccount=...`.
SHOW_USERS = ("scontrol", "--oneliner", "show", "assoc_mgr", "flags=users")


def read_names(ask: Ask, groups: Iterable[str]) -> SiteNames:
    """Return the users of associations and the members of these groups, from this machine's
    databases.

    A group that this machine does not know is left out, and AllowGroups is then ignored.
    """
    users = {
        name: int(uid)
        for name, uid in re.findall(r"UserName=([^\s(]+)\((\d+)\)", ask([*SHOW_USERS]))
        if int(uid) < 0xFFFFFFFE  # Slurm shows this number for a name that has no user
    }
    members: dict[str, tuple[str, ...]] = {}
    for name in sorted(set(groups)):
        try:
            group_entry = grp.getgrnam(name)
        except KeyError:
            continue
        group_accounts = [
            account for account in pwd.getpwall() if account.pw_gid == group_entry.gr_gid
        ]
        group_accounts += [
            account
            for member_name in group_entry.gr_mem
            if (account := _find_passwd_entry(member_name))
        ]
        members[name] = tuple(dict.fromkeys(account.pw_name for account in group_accounts))
        users |= {account.pw_name: account.pw_uid for account in group_accounts}
    return SiteNames(users, members)


def _find_passwd_entry(user_name: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(user_name)
    except KeyError:
        return None
