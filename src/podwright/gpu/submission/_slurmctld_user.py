"""The user who runs slurmctld, whose questions the service answers."""

from __future__ import annotations

import pwd

from podwright.errors import InvalidRequest
from podwright.slurm.reader import SHOW_CONFIG, SlurmConfig
from podwright.slurm.site.blocking_commands import ask_slurm


def slurmctld_uid(user_name: str | None) -> int:
    """Return the uid of a user by name, or of slurmctld as Slurm says it, or of the user `slurm`.

    It is 0 where there is neither. Raises InvalidRequest for a user that does not exist.
    """
    if not user_name and (config := SlurmConfig(ask_slurm(list(SHOW_CONFIG)))):
        return config.user_id
    try:
        return pwd.getpwnam(user_name or "slurm").pw_uid
    except KeyError:
        if user_name:
            raise InvalidRequest(
                f"there is no user {user_name}", operation="--slurm-user"
            ) from None
        return 0
