"""The notification of systemd that a service is ready, which is sent only once."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from podwright.hosts import tell_ready


@pytest.mark.parametrize("abstract", [True, False])
def test_it_is_said_once(tmp_path: Path, abstract: bool) -> None:
    place = f"podwright-{os.getpid()}-{tmp_path.name}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notice:
        notice.bind(f"\0{place}" if abstract else place)
        notice.settimeout(300)
        environ = {"NOTIFY_SOCKET": f"@{place}" if abstract else place}
        tell_ready(environ)
        assert notice.recv(100) == b"READY=1"
        assert environ == {}, "what it starts is another service"
        tell_ready(environ)
        notice.setblocking(False)
        with pytest.raises(BlockingIOError):
            notice.recv(100)


@pytest.mark.parametrize("place", ["", "vsock:2:1", "/nowhere/at/all"])
def test_where_nobody_listens_nothing_happens(place: str) -> None:
    tell_ready({"NOTIFY_SOCKET": place})
