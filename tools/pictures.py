"""The pictures of README and documentation, from a real run and from the code: `make pictures`.

- first.svg: a terminal in which a partition is made and a program runs on it
- gpu.svg: a terminal in which a job script is checked and a request is explained; asks the Slurm
  of this machine
- partitions.svg: a terminal in which partitions are made and a larger request is explained
- poprun.svg: a terminal in which a launch is planned
- pod.svg: the machines and devices of that pod, with the partition, as the server says
- top.svg: `podwright top` of a larger pod, with partitions, one who waits, and a drained machine
- house.svg: the floors of the package, from the contract that CI enforces (docs/conf.py writes it)
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Collection, Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from podwright.client import Client, UnixTransport

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "pictures"
BIN = Path(sys.executable).parent
#: What is typed in the first picture.
LINES = (
    "vipu create partition p1 --size 4",
    "vipu list partitions",
    "poprun --num-replicas 4 --num-instances 2 python3 hello.py",
    "vipu remove partition p1",
)
#: What is typed in the picture of partitions, and in that of a plan.
PARTITION_LINES = (
    "vipu create partition p1 --size 4",
    "vipu create partition p2 --size 2",
    "vipu list partitions",
    "vipu explain partition --size 16",
)
PLAN_LINES = ("poprun --dry-run --num-replicas 8 --num-instances 4 python3 train.py",)
#: What is typed in the picture of the tools for GPU clusters, in the project's folder.
GPU_LINES = (
    "podwright slurm lint examples/broken_job.sh",
    "podwright slurm explain-request --cluster-nodes 2 --node-gpus 4"
    " --nodes=2 --ntasks-per-node=4 --gpus-per-task=1",
)
#: What goes on in the picture of `top`, and who waits there.
ON_THE_POD = (
    "vipu create partition train --size 64 --num-gcds 16 --duration 7500 --no-ipuof-files",
    "vipu create partition tune --size 32 --duration 3000 --no-ipuof-files",
    "vipu create partition sweep --size 8 --no-ipuof-files",
    "vipu create partition eval --size 4 --duration 900 --no-ipuof-files",
    "vipu-admin drain machine ag47",
)
WAITS = "vipu create partition large --size 256 --wait --no-ipuof-files"
_HELLO = """\
import popdist
popdist.init()
print("instance", popdist.getInstanceIndex(), "of", popdist.getNumInstances())
"""
_STYLE = "font-family:system-ui,sans-serif;font-size:13px"
_WIDTH = 640
#: Columns of a terminal. On a phone of 390 pixels a letter is then six pixels wide.
_COLUMNS = 62


@contextlib.contextmanager
def served(preset: str) -> Iterator[tuple[Path, dict[str, str]]]:
    """A server of a simulated pod: its folder, and the environment in which commands find it."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        environ = {
            **os.environ,
            "PODWRIGHT_SOCKET": f"{folder}/socket",
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "TERM": "xterm",
            "COLUMNS": str(_COLUMNS),
            "LC_ALL": "C.UTF-8",
        }
        environ.pop("NO_COLOR", None)
        words = [str(BIN / "vipu-server"), "--preset", preset, "--socket", f"{folder}/socket"]
        words += ["--storage", f"{folder}/db", "--api-port", "0"]
        server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while subprocess.run(
                ["vipu", "--server-version"], env=environ, capture_output=True, check=False
            ).returncode:
                time.sleep(0.1)
            yield folder, environ
        finally:
            server.terminate()
            server.wait()


def recorded() -> tuple[str, list[dict[str, Any]]]:
    """What the lines print on a terminal with colours; and the devices while the partition is."""
    shown, devices = "", []
    with served("pod16") as (folder, environ):
        (folder / "hello.py").write_text(_HELLO)
        for line in LINES:
            shown += f"\x1b[1;32m$\x1b[0m {line}\n{_typed(line, folder, environ)}"
            if line == LINES[1]:
                asked = ["vipu", "list", "devices", "--json"]
                found = subprocess.run(asked, env=environ, capture_output=True, check=True)
                devices = json.loads(found.stdout)
    return shown, devices


def typed(lines: Collection[str]) -> str:
    """What lines print on a terminal with colours, one after another, at a server of a POD16."""
    shown = ""
    with served("pod16") as (folder, environ):
        (folder / "train.py").write_text(_HELLO)
        for line in lines:
            printed = _typed(line, folder, environ, codes=(0, 75))  # 75: it would have to wait
            shown += f"\x1b[1;32m$\x1b[0m {line}\n{printed}"
    return shown


def gpu_tools() -> str:
    """What the lines for GPU clusters print on a terminal with colours."""
    environ = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "TERM": "xterm"}
    environ["COLUMNS"] = str(_COLUMNS)
    environ.pop("NO_COLOR", None)
    shown = ""
    for line in GPU_LINES:
        printed = _typed(line, ROOT, environ, codes=(0, 1))
        shown += f"\x1b[1;32m$\x1b[0m {line}\n{printed}"
    return shown


def top() -> str:
    """The screen of `podwright top`, at a server of a POD256 on which something goes on."""
    with served("pod256") as (folder, environ):
        for line in ON_THE_POD:
            subprocess.run(line.split(), env=environ, capture_output=True, check=True)
        waiting = subprocess.Popen(WAITS.split(), env=environ, stderr=subprocess.DEVNULL)
        try:
            with Client(UnixTransport(str(folder / "socket"))) as client:
                while not client.list_waiters():
                    time.sleep(0.1)
                return _plain(asyncio.run(_screen(client)))
        finally:
            waiting.send_signal(signal.SIGINT)
            waiting.wait()


async def _screen(client: Client) -> str:
    from textual.widgets import DataTable

    from podwright.top import Feed, TopApp

    app = TopApp(Feed(client), "podwright top   a POD256   SIMULATED", refresh_interval=0.2)
    async with app.run_test(size=(_COLUMNS, 24)) as pilot:
        while app.query_one(DataTable).row_count < len(ON_THE_POD) - 1:
            await pilot.pause(0.1)
        await pilot.pause(1.0)
        return app.export_screenshot(title="podwright top")


def _typed(
    line: str, folder: Path, environ: Mapping[str, str], codes: Collection[int] = (0,)
) -> str:
    """What a line prints on a terminal (script of util-linux gives it one).

    Raises CalledProcessError for an exit code other than `codes`.
    """
    done = subprocess.run(
        ["script", "-qefc", line, "/dev/null"],
        cwd=folder,
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in codes:
        done.check_returncode()
    lines = done.stdout.replace("\r", "").splitlines(keepends=True)
    return "".join(line for line in lines if "allow-run-as-root" not in line)


def terminal(shown: str, title: str, name: str) -> str:
    """A narrow terminal as a picture; `name` keeps its styles from another's."""
    width = min(_COLUMNS, max(len(Text.from_ansi(line)) for line in shown.splitlines()) + 1)
    with open(os.devnull, "w") as nowhere:
        console = Console(record=True, width=width, file=nowhere, force_terminal=True)
        console.print(Text.from_ansi(shown))
        svg = console.export_svg(title=title, theme=MONOKAI, unique_id=name)
    return _plain(svg)


def _plain(svg: str) -> str:
    """A picture for which nobody loads anything from elsewhere: any fixed font will do."""
    svg = re.sub(r"@font-face\s*{[^}]*}", "", svg).replace("Fira Code", "ui-monospace")
    return re.sub(r"[ \t]+$", "", svg, flags=re.MULTILINE)


def pod(devices: list[dict[str, Any]]) -> str:
    """The machines of a pod and their devices; those of a partition are filled."""
    parts, machines = [], sorted({d["device"]["machine"] for d in devices})
    for row, machine in enumerate(machines):
        y = 30 + row * 56
        parts.append(f'<rect x="10" y="{y}" width="{_WIDTH - 20}" height="44" rx="8" class="box"/>')
        parts.append(f'<text x="24" y="{y + 27}">{escape(machine)}</text>')
        for column, one in enumerate(d for d in devices if d["device"]["machine"] == machine):
            x, name = 170 + column * 112, one["partition"]
            kind = "used" if name else "free"
            label = escape(name or "free")
            parts.append(
                f'<rect x="{x}" y="{y + 8}" width="100" height="28" rx="5" class="{kind}"/>'
            )
            parts.append(f'<text x="{x + 50}" y="{y + 27}" class="mid">{label}</text>')
    title = f"a pod of {len(devices)} devices in {len(machines)} machines, one link domain"
    parts.insert(0, f'<text x="10" y="18">{title}</text>')
    return _svg(_WIDTH, 40 + 56 * len(machines), parts)


def floors() -> list[str]:
    """The floors of the package, the highest first, as the import contract lists them."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for contract in settings["tool"]["importlinter"]["contracts"]:
        if contract.get("containers") == ["podwright"]:
            found: list[str] = contract["layers"]
            return found
    raise LookupError("pyproject.toml has no contract of the package's floors")


def house() -> str:
    """The floors, each with the first sentence of its own words."""
    parts = []
    for row, name in enumerate(floors()):
        y = 10 + row * 34
        parts.append(
            f'<rect x="10" y="{y}" width="{_WIDTH + 140}" height="28" rx="5" class="box"/>'
        )
        parts.append(f'<text x="22" y="{y + 19}" class="name">{escape(name)}</text>')
        parts.append(f'<text x="140" y="{y + 19}">{escape(_sentence(name))}</text>')
    return _svg(_WIDTH + 160, 20 + 34 * len(floors()), parts)


def _sentence(name: str) -> str:
    import importlib

    names = [part.strip() for part in name.split("|")]
    words = importlib.import_module(f"podwright.{names[0]}").__doc__ or ""
    first = " ".join(words.split("\n\n")[0].split())
    return first if len(first) <= 100 else first[:97].rsplit(" ", 1)[0] + " ..."


def _svg(width: int, height: int, parts: list[str]) -> str:
    style = (
        f"text{{{_STYLE};fill:#24292f}} .mid{{text-anchor:middle}} .name{{font-weight:600}} "
        ".box{fill:#f6f8fa;stroke:#8c959f} .free{fill:#fff;stroke:#8c959f} "
        ".used{fill:#aceebb;stroke:#1a7f37}"
    )
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}">'
    )
    ground = '<rect width="100%" height="100%" fill="#fff"/>'
    return "\n".join([head, f"<style>{style}</style>", ground, *parts, "</svg>", ""])


def pictures() -> Iterator[tuple[str, str]]:
    """The name of each picture, and its text."""
    shown, devices = recorded()
    yield "first.svg", terminal(shown, "a simulated pod", "first")
    yield "partitions.svg", terminal(typed(PARTITION_LINES), "partitions of a pod", "partitions")
    yield "poprun.svg", terminal(typed(PLAN_LINES), "the plan of a launch", "poprun")
    yield "gpu.svg", terminal(gpu_tools(), "tools for GPU clusters under Slurm", "gpu")
    yield "pod.svg", pod(devices)
    yield "top.svg", top()


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in pictures():
        (FOLDER / name).write_text(text)
        print(FOLDER / name)
