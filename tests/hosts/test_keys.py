"""The password that ssh asks for: one answer for each question, whoever hangs up before it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from podwright.hosts._ssh_key_distribution import _askpass_variables


def test_each_question_gets_one_answer() -> None:
    with _askpass_variables("open sesame") as settings:
        ask = settings["SSH_ASKPASS"]
        for _ in range(100):
            said = subprocess.run([ask, "Password: "], capture_output=True, check=True).stdout
            assert said == b"open sesame\n"
    assert not Path(ask).parent.exists()


def test_a_reader_that_hangs_up_takes_nobody_elses_answer() -> None:
    with _askpass_variables("open sesame") as settings:
        ask = Path(settings["SSH_ASKPASS"])
        for _ in range(100):
            os.close(os.open(ask.parent / "pipe", os.O_RDONLY | os.O_NONBLOCK))
        said = subprocess.run([ask, "Password: "], capture_output=True, check=True).stdout
        assert said == b"open sesame\n"


def test_other_questions_get_none() -> None:
    with _askpass_variables("open sesame") as settings:
        command = [settings["SSH_ASKPASS"], "The host key is not known. Go on (yes/no)?"]
        done = subprocess.run(command, capture_output=True, check=False)
        assert (done.returncode, done.stdout) == (1, b"")
