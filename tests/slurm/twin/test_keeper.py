"""The keeper removes the socket of its own service, and never the socket of another one."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from podwright.slurm.twin_service._state_keeper_process import _remove_stale_socket


def test_a_socket_that_its_ended_service_has_not_closed_yet_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "service" / "twin.sock"
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(path))
        door.listen()
        _remove_stale_socket(path, service=os.getpid(), folder_is_ours=True)
    assert not path.parent.exists()


def test_a_socket_at_which_nobody_answers_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "service" / "twin.sock"
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(path))
        door.listen()
    _remove_stale_socket(path, service=os.getpid(), folder_is_ours=True)
    assert not path.parent.exists()


@pytest.mark.parametrize("folder_is_ours", [False, True])
def test_a_socket_of_another_service_stays(tmp_path: Path, folder_is_ours: bool) -> None:
    path = tmp_path / "twin.sock"
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(path))
        door.listen()
        _remove_stale_socket(path, service=os.getppid(), folder_is_ours=folder_is_ours)
        assert path.exists()
