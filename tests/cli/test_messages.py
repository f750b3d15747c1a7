"""The messages that people meet most, each with its cause, in a file that a person can read.

`python -m tests.cli.test_messages` writes `messages.md` anew. Read what has changed as a stranger
would: does it say what is wrong, and what to type now?
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from podwright.server._caller_identity import _account_name
from tests.conftest import home_variables
from tests.whole.conftest import Pod as Server

SNAPSHOT = Path(__file__).with_name("messages.md")
#: What each line is about, and the lines. `!`: a line that only prepares the next ones.
SESSIONS: dict[str, str] = {
    "Mistyped words": """
        vipu
        vipu lst partitions
        vipu list partition s
        vipu create partition
        vipu create partition p1 --sze 4
        vipu create partition p1 --size four
        vipu create partition p1 --size -1
        vipu list partitions -o csv
        vipu list partitions --sort-by Colour
        vipu get partition
        vipu-admin drain
        vipu-admin create allocation a1 --size 0
        vipu-admin set share --guest slurm --weight 0
        poprun
        poprun --num-replicas
        poprun --num-replicas two true
        poprun --num-replica 2 true
        poprun --num-replicas 3 --num-instances 2 true
        podwright
        podwright slrum lint
        podwright slurm lnt job.sh
        podwright slurm template torch
        podwright man vipu-adm
        podwright completion fish
        gc-info --device-id
        gc-monitor --interval 0
    """,
    "Sizes and shapes": """
        vipu create partition p1
        vipu create partition p1 --size 3
        vipu create partition p1 --size 32
        vipu create partition p1 --size 4 --num-gcds 3
        vipu create partition p1 --size 4 --num-replicas 3
        vipu create partition p1 --size 4 --num-ilds 2
        vipu create partition p1 --devices 0:0,0:99
        vipu create partition p1 --size 4 --devices 0:0
        vipu create partition p/1 --size 4
        vipu create partition p1 --size 4 --cluster c9
        vipu create partition p1 --size 4 --allocation a9
        vipu create partition p1 --size 4 --profile 1g.10gb
        vipu create partition p1 --size 4 --duration 1e9
        vipu create partition p1 --size 4 --host n1
        vipu explain
        vipu explain partition
        vipu explain partition --size 3
        vipu explain nothing-of-this-name
    """,
    "Partitions that are there, and are not": """
        ! vipu create partition p1 --size 8
        vipu create partition p1 --size 4
        vipu create partition p2 --size 16
        vipu explain partition --size 16
        vipu get partition p2
        vipu get partition p1 --gcd 1
        vipu get cluster c9
        vipu get allocation a9
        vipu reset partition p2
        vipu remove partition p2
        vipu remove lease l9
        vipu remove waiter w9
        vipu list partitions --cluster c9
        vipu-admin remove cluster pod16
        vipu-admin remove allocation pod16
        vipu-admin drain machine ag9
        vipu-admin drain machine ag1
        vipu-admin resume machine ag2
        vipu-admin remove agent ag1
        poprun --vipu-partition p2 --num-replicas 2 true
        poprun --vipu-partition p1 --num-replicas 4 true
        poprun --num-replicas 16 --num-instances 2 true
        poprun --vipu-partition p1 --num-replicas 8 no-such-program
        poprun --vipu-partition p1 --num-replicas 8 false
        poprun --vipu-partition p1 --num-replicas 8 sh -c 'kill -9 $$'
        poprun --vipu-partition p1 --num-replicas 8 --timeout 1 sleep 60
        gc-info --partition p2 -l
        gc-info --partition p1 --device-id 9
        gc-monitor --partition p2
        ! vipu-admin resume machine ag1
        ! vipu remove partition p1
        gc-info -l
    """,
    "Users, keys and quotas": """
        ! vipu-admin create user alice --allocations pod16
        vipu-admin create user alice
        vipu-admin create user bob --role king
        vipu-admin create user carol --allocations a9
        vipu-admin get user dora
        vipu-admin remove user dora
        vipu-admin create certificate alice
        vipu-admin revoke certificate alice --number 1
        vipu-admin set quota --user dora --devices 4
        vipu-admin set quota --devices 4
        vipu-admin set quota --user alice
        vipu-admin remove quota --user dora
        vipu-admin create agent ag9
        vipu-admin create agent ag9 --host 127.0.0.1 --port 1
        vipu-admin create cluster c1 --agents ag9
        vipu-admin create allocation a1 --cluster c9 --size 4
        vipu-admin add machine ag9 --cluster c9
        vipu-admin replace machine ag9 --by ag8
        vipu-admin backup store /dev/null/pod.backup
        vipu-admin discover agent
        vipu-admin remove share --guest nobody
        vipu --api-user-id alice list partitions
        vipu --api-access-key x list partitions
    """,
    "Which server": """
        vipu -H 127.0.0.1:1 list partitions
        vipu -H no-such-host.invalid list partitions
        vipu -H 127.0.0.1:port list partitions
        vipu --context lab list partitions
        vipu --config /nowhere/vipu-cli.hcl list partitions
        vipu --tls-certs /nowhere list partitions
        podwright config use-context lab
        podwright config delete-context lab
        podwright config current-context
        podwright config set-context lab
        podwright config get-contexts
        podwright web --no-open
        podwright top
        podwright proxy -- true
    """,
    "Files and Slurm": """
        podwright slurm lint /nowhere/job.sh
        podwright slurm lint
        podwright slurm check-fabric /nowhere/job.out
        podwright slurm explain-request --node=2
        podwright slurm explain-request --rules --nodes=2 --gpus=3
        podwright slurm configure --gpus /nowhere/nodes.json
        podwright slurm configure --mode static
        podwright slurm retry -- true
        podwright slurm rehearse
        podwright slurm serve --site /nowhere/native.toml
        podwright slurm twin status
        podwright node health --config /nowhere/health.toml
        podwright replay /nowhere/sacct.txt
        podwright replay --example --ways none
        podwright trace /nowhere/run.trace
        podwright kubernetes manifests
        podwright kubernetes plan train
        vipu-server --preset pod9
        vipu-server --preset pod16 --storage /dev/null/pod.db
        vipu-agent --family nothing
    """,
}
#: What differs from run to run and from machine to machine.
_ME = rf"\b{re.escape(_account_name(os.getuid()) or str(os.getuid()))}\b"
_VOLATILE = (
    (_ME, "ME"),
    (r"\b[lw]1\d{7}\b", "ID"),
    (r"\bprocess \d+", "process N"),
    (r"127\.0\.0\.1:\d{3,5}", "127.0.0.1:PORT"),
    (r"'[\w-]{32}'", "'KEY'"),
    (r"(?m)^(usage: .*\n)( +.*\n)*", r"\1"),
)


def written(server: Server, folder: Path) -> str:
    """The whole file: each cause as it was typed, and what it printed."""
    home = {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "TMPDIR": str(folder)}
    environ = {**server.environ, **home, "LC_ALL": "C.UTF-8", "COLUMNS": "80"}
    parts = ["# What the commands say\n\n`python -m tests.cli.test_messages` writes this file.\n"]
    for title, lines in SESSIONS.items():
        parts.append(f"\n## {title}\n\n```console\n")
        for line in filter(None, map(str.strip, lines.splitlines())):
            typed = line.removeprefix("! ")
            done = subprocess.run(
                ["bash", "-c", typed],
                cwd=folder,
                env=environ,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            if typed != line:
                assert done.returncode == 0, done.stderr
                continue
            text = done.stdout + done.stderr
            text = "".join(
                each
                for each in text.splitlines(keepends=True)
                if not each.startswith("SIMULATED") and "--allow-run-as-root" not in each
            )
            for pattern, shown in ((re.escape(str(folder)), "~"), *_VOLATILE):
                text = re.sub(pattern, shown, text)
            parts.append(f"$ {typed}\n{text.rstrip()}\n[exit code {done.returncode}]\n\n")
        parts.append("```\n")
    return "".join(parts)


@contextlib.contextmanager
def a_server(folder: Path) -> Iterator[Server]:
    (folder / "pod").mkdir(mode=0o700)
    server = Server(folder / "pod", "--preset", "pod16", variables=home_variables(folder))
    server.start()
    yield server
    server.stop()


def test_the_messages_that_people_meet_most_are_those_of_the_file(tmp_path: Path) -> None:
    with a_server(tmp_path) as server:
        found = written(server, tmp_path)
    assert found.count("\n$ ") >= 100
    # An account may have a name that is a word of the file: `nobody`, `alice`.
    found, expected = (re.sub(_ME, "ME", text) for text in (found, SNAPSHOT.read_text()))
    assert found == expected, "look at what has changed; then write the file anew"


def test_no_message_counts_one_of_many_or_ends_twice() -> None:
    text = SNAPSHOT.read_text()
    assert re.findall(r"\b1 \w+s (?:are|do|were|answer|start)\b.*", text) == []
    assert re.findall(r".*[a-z]\.\.(?!\.).*", text.replace("...", "")) == []
    assert re.findall(r".*\de\+\d\d.*", text) == []
    assert "Traceback" not in text
    assert "this is a fault of" not in text


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made, a_server(Path(made)) as running:
        SNAPSHOT.write_text(written(running, Path(made)))
