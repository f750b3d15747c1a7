"""The figures of a server at work, as Prometheus' own tool judges them."""

from __future__ import annotations

import subprocess
import urllib.request
from collections.abc import Callable

import pytest

from tests.ports import free_port
from tests.whole.conftest import Pod, make_pod

pytestmark = pytest.mark.outer
__all__ = ["make_pod"]


def test_promtool_finds_nothing_to_mend(make_pod: Callable[..., Pod]) -> None:
    port = free_port()
    pod = make_pod("--preset", "pod16", "--http-port", str(port), "--pod-name", "rack 7")
    pod.good("vipu", "create", "partition", "p1", "--size", "4")
    assert pod.run("vipu", "create", "partition", "p1", "--size", "4").code
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=300) as said:
        text = said.read()
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, timeout=300, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b""), checked
    for name in (b"podwright_errors_total{", b"podwright_devices{", b"podwright_epoch{"):
        assert name in text
    series = [line for line in text.decode().splitlines() if not line.startswith("#")]
    assert [line for line in series if 'pod="rack 7"' not in line] == []
