"""A function of this Python's at a host that really has another one: Debian 13's own."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

import pytest

import podwright
from podwright.errors import PythonMismatch
from podwright.functions import dump_call, read_outcome
from podwright.functions._call import python
from tests.outer.lab._release import clean

pytestmark = pytest.mark.outer

#: $1: a Debian. $2: a folder, its /tmp. $3, $4: our modules, and those that they need.
_THERE = """
mount --bind "$2" "$1/tmp"; mount --bind "$3" "$1/srv"; mount --bind "$4" "$1/opt"
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=/srv:/opt
export PODWRIGHT_PAYLOAD=/tmp/call PODWRIGHT_RESULT=/tmp/result.0
chroot "$1" python3 --version
exec chroot "$1" python3 -m podwright.functions
"""


def test_a_real_other_python_refuses_with_both_versions(tmp_path: Path) -> None:
    """It could not read the call's byte code; and it calls nothing."""
    mark = tmp_path / "called"
    (tmp_path / "call").write_bytes(dump_call(lambda: Path("/tmp/called").touch(), (), {}))
    ours = Path(podwright.__file__).parents[1]
    words = [str(clean("trixie")), str(tmp_path), str(ours), sysconfig.get_path("purelib")]
    done = subprocess.run(
        ["unshare", "-m", "--propagation", "private", "bash", "-euc", _THERE, "-", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    there = f"C{done.stdout.strip()}"
    assert there.startswith("CPython 3.13."), done.stderr
    assert done.returncode == 1
    outcome = read_outcome(str(tmp_path / "result.0"), 0)
    assert outcome
    assert isinstance(outcome.error, PythonMismatch)
    assert (outcome.error.data["here"], outcome.error.data["there"]) == (python(), there)
    assert "use the same Python on all hosts" in outcome.error.would_work
    assert not mark.exists()
