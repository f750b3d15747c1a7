"""The meeting point of instances that nothing else has joined, from the variables of torchrun."""

from __future__ import annotations

import os
from typing import NamedTuple

from popdist._environment import read_number
from popdist._errors import BackendError, BadEnvironment

RANK_VARIABLE, SIZE_VARIABLE, ADDRESS_VARIABLE, PORT_VARIABLE = (
    "RANK",
    "WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
)
#: The secret of a run. It is in a file that only its user may read, or else in the environment.
SECRET_FILE_VARIABLE, SECRET_VARIABLE = "POPDIST_SECRET_FILE", "POPDIST_SECRET"


class Point(NamedTuple):
    """The rank of this instance, the number of instances, and the address where they meet.

    The address is empty if the instance was started alone.
    """

    rank: int
    size: int
    address: str
    port: int


def point() -> Point:
    """Return the meeting point of this program. Raises BadEnvironment."""
    size = read_number(SIZE_VARIABLE, 1, least=1)
    rank = read_number(RANK_VARIABLE, 0, least=0, most=size - 1)
    address = os.environ.get(ADDRESS_VARIABLE, "")
    if size > 1 and not address:
        raise BadEnvironment(
            f"{SIZE_VARIABLE}={size}, but {ADDRESS_VARIABLE} is not set; poprun sets both"
        )
    if SIZE_VARIABLE not in os.environ or not address:
        return Point(0, 1, "", 0)
    return Point(rank, size, address, read_number(PORT_VARIABLE, 0, least=1, most=65535))


def known() -> bool:
    """Return whether the launcher has set the meeting point and its secret."""
    return bool(
        os.environ.get(ADDRESS_VARIABLE)
        and (os.environ.get(SECRET_FILE_VARIABLE) or os.environ.get(SECRET_VARIABLE))
    )


def secret() -> bytes:
    """Return the secret by which a process proves that it belongs to this run.

    Raises BackendError.
    """
    secret_path = os.environ.get(SECRET_FILE_VARIABLE)
    if secret_path:
        try:
            with open(secret_path, "rb") as secret_file:
                return secret_file.read()
        except OSError as error:
            raise BackendError(f"{SECRET_FILE_VARIABLE}: {secret_path}: {error.strerror}") from None
    secret_text = os.environ.get(SECRET_VARIABLE)
    if not secret_text:
        raise BackendError(
            f"there is neither {SECRET_FILE_VARIABLE} nor {SECRET_VARIABLE}, so nobody can tell "
            "who belongs "
            "to this run; start the program with poprun"
        )
    return secret_text.encode()
