"""Which files of StateSaveLocation a twin takes, and which never."""

from __future__ import annotations

from pathlib import Path

import pytest

from podwright.errors import InvalidRequest
from podwright.slurm.twin import present_copied


def test_scripts_environments_and_keys_are_not_copied(tmp_path: Path) -> None:
    for name in ("job_state", "node_state", "resv_state", "jwt_hs256.key", "dbd.messages"):
        (tmp_path / name).write_bytes(b"of " + name.encode())
    job = tmp_path / "hash.7" / "job.17"
    job.mkdir(parents=True)
    (job / "script").write_text("#!/bin/sh\nexport TOKEN=secret\n")
    (job / "environment").write_text("TOKEN=secret")
    present = present_copied(tmp_path)
    assert set(present.state) == {
        *("job_state", "node_state", "resv_state"),
        *("hash.7/job.17/script", "hash.7/job.17/environment"),
    }
    assert not any(b"secret" in content for content in present.state.values())


def test_a_folder_without_state_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="has no job_state"):
        present_copied(tmp_path)
