"""One owner for each socket path, whatever a killed or hostile neighbour left there."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from podwright import wire
from podwright.server._socket_lock import Lock, SocketPlace, prepare_folder


def _held(folder: Path) -> SocketPlace:
    place = SocketPlace(folder / "s")
    place.take()
    place.listen()
    return place


def test_what_is_taken_is_given_back_without_a_trace(folder: Path) -> None:
    place = _held(folder)
    assert stat.S_IMODE((folder / "s").stat().st_mode) == 0o600
    assert stat.S_IMODE((folder / "s.lock").stat().st_mode) == 0o600
    place.release()
    assert os.listdir(folder) == []


def test_a_second_owner_is_told_who_the_first_is(folder: Path) -> None:
    place = _held(folder)
    with pytest.raises(wire.AlreadyExists, match=rf"process {os.getpid()}\) uses the socket"):
        SocketPlace(folder / "s").take()
    assert (folder / "s").exists()
    place.release()
    _held(folder).release()


def test_a_stale_socket_is_replaced(folder: Path) -> None:
    """`kill -9` leaves this state: socket and lock file exist, with no process behind them."""
    script = (
        "import sys, time; from pathlib import Path;"
        "from podwright.server._socket_lock import SocketPlace;"
        "p = SocketPlace(Path(sys.argv[1])); p.take(); p.listen(); print('up', flush=True);"
        "time.sleep(60)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(folder / "s")], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    with pytest.raises(wire.AlreadyExists, match=str(process.pid)):
        SocketPlace(folder / "s").take()
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert sorted(os.listdir(folder)) == ["s", "s.lock"]
    _held(folder).release()
    assert os.listdir(folder) == []


def test_a_foreign_server_that_answers_is_left_alone(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as foreign:
        foreign.bind(str(folder / "s"))
        foreign.listen()
        with pytest.raises(wire.AlreadyExists, match="something answers"):
            SocketPlace(folder / "s").take()
        assert os.listdir(folder) == ["s"]


def test_a_file_in_the_way_is_left_alone(folder: Path) -> None:
    (folder / "s").write_text("precious")
    with pytest.raises(wire.InvalidRequest, match="is not a socket"):
        SocketPlace(folder / "s").take()
    assert (folder / "s").read_text() == "precious"


def test_a_link_is_not_followed(folder: Path) -> None:
    (folder / "s.lock").symlink_to(folder / "elsewhere")
    with pytest.raises(wire.Unavailable, match="cannot use"):
        SocketPlace(folder / "s").take()
    assert not (folder / "elsewhere").exists()


def test_a_path_too_long_is_refused(folder: Path) -> None:
    with pytest.raises(wire.InvalidRequest, match="too long"):
        SocketPlace(folder / ("x" * 100)).take()


def test_a_private_folder_is_ours_alone(folder: Path) -> None:
    private = folder / "p"
    SocketPlace(private / "s", private_folder=True).take()
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    private.chmod(0o755)
    with pytest.raises(wire.Denied, match=f"chmod 0700 {private}"):
        prepare_folder(private, private=True)
    (folder / "l").symlink_to(private)
    private.chmod(0o700)
    with pytest.raises(wire.Denied):
        prepare_folder(folder / "l", private=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another's folder")
def test_anothers_folder_is_refused(folder: Path) -> None:
    planted = folder / "p"
    planted.mkdir(mode=0o700)
    os.chown(planted, 4242, 4242)
    with pytest.raises(wire.Denied, match="not private to you"):
        SocketPlace(planted / "s", private_folder=True).take()


def test_a_folder_that_cannot_be_made(folder: Path) -> None:
    (folder / "f").write_text("")
    with pytest.raises(wire.Unavailable, match="Name another place"):
        SocketPlace(folder / "f" / "s").take()


def test_a_lock_whose_file_was_removed_is_taken_anew(folder: Path) -> None:
    first = Lock(folder / "a", "a")
    first.take()
    (folder / "a.lock").unlink()
    second = Lock(folder / "a", "a")
    second.take()
    first.release()
    second.release()
    assert os.listdir(folder) == []


def test_a_store_has_one_lock_by_whatever_path(folder: Path) -> None:
    """Regression: the same store through a link counted as a second one."""
    (folder / "other").mkdir()
    first = Lock(folder / "db", "the store", locks_inode=True)
    first.take()
    (folder / "db").touch()
    first.hold()  # it came to be after the lock
    (folder / "other" / "hard").hardlink_to(folder / "db")
    (folder / "other" / "soft").symlink_to(folder / "db")
    for name in ("hard", "soft"):
        second = Lock(folder / "other" / name, "the store", locks_inode=True)
        with pytest.raises(wire.AlreadyExists, match="by another path"):
            second.take()
        assert not (folder / "other" / f"{name}.lock").exists()
    first.release()
    second.take()
    with pytest.raises(wire.AlreadyExists, match="by another path"):
        first.take()
    second.release()
