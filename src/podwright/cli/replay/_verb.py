"""`podwright replay`: the results of other ways of scheduling with a site's own jobs."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from podwright.cli.shared._arguments import positive, seconds

if TYPE_CHECKING:
    from podwright.replay import Chances, ReplayWay, Report, SlurmModel, Trace

_EXAMPLES = """\
a report of what you have:
  podwright replay --example
  podwright replay sacct.txt --pod pod64 --ways native,static:8x4+2x16,host-mapping:4x16
  podwright replay trace.csv --pod pod256 --policy best-fit,lowest,moves --html report.html
  podwright replay sacct.txt --gpus site.toml

who gains and who loses when schedulers share a pod:
  podwright replay sacct.txt --with kubernetes=jobs.csv --share slurm=3

to get sacct.txt from a Slurm site (as somebody who sees all jobs):
  podwright replay --fields"""


def add_parser(verbs: Any, words: Sequence[str] = ()) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "replay",
        help="try other ways of scheduling on recorded jobs",
        description="Take the jobs that a site has had, and say what each way of scheduling would "
        "have done with them.",
        epilog=_EXAMPLES,
    )
    parser.add_argument(
        "trace", metavar="TRACE", nargs="?", help="sacct -P, CSV or SWF, also .gz; - for input"
    )
    parser.add_argument(
        "--example", action="store_true", help="replay a synthetic month: nothing else is needed"
    )
    parser.add_argument("--fields", action="store_true", help="print the sacct command to run")
    where = parser.add_argument_group("which devices")
    where.add_argument("--pod", metavar="POD", help="pod64 (the default), pod256 and so on")
    where.add_argument("--gpus", metavar="FILE", help="GPU nodes instead: a cluster's TOML file")
    where.add_argument(
        "--hosts", metavar="COUNTxCPUS[xGB]", help="hosts of the pod: their cores and memory bind"
    )
    ways = parser.add_argument_group("what to try")
    ways.add_argument(
        "--ways",
        metavar="WAY,...",
        help="native, plugin, shared, static:8x4+2x16, host-mapping:4x16; for GPUs shared, "
        "exclusive",
    )
    ways.add_argument(
        "--policy",
        metavar="POLICY,...",
        help="how blocks are chosen: best-fit (the product's), lowest, moves, trim, no-shape",
    )
    ways.add_argument("--movable", metavar="PERCENT", type=float, default=100.0, help="100")
    ways.add_argument("--move-time", metavar="SECONDS", type=seconds, default=300.0, help="300")
    ways.add_argument("--mtbf", metavar="DAYS", type=float, help="machines fail so often, each")
    ways.add_argument("--seed", metavar="N", type=int, default=1, help="of all chance, 1")
    ways.add_argument(
        "--load",
        metavar="SHARE",
        type=_share,
        help="stretch the times between submissions until the jobs ask for this share of the "
        "devices, as in 1.3",
    )
    guests = parser.add_argument_group("who shares the pod")
    guests.add_argument(
        "--with",
        dest="guests",
        metavar="NAME=FILE",
        action="append",
        default=[],
        help="another trace on the same pod, of kubernetes, 'kubernetes NAME' or people, while "
        "TRACE is Slurm's; may be given several times",
    )
    guests.add_argument(
        "--share",
        metavar="NAME=N",
        action="append",
        default=[],
        help="the weight of a guest, as of vipu-server (1 each), as in slurm=3; may be given "
        "several times",
    )
    guests.add_argument(
        "--part",
        metavar="NAME=DEVICES",
        action="append",
        default=[],
        help="what the guest would have alone, were the pod split (in proportion to the weights); "
        "may be given several times",
    )
    slurm = parser.add_argument_group("which Slurm")
    slurm.add_argument(
        "--slurm-conf", metavar="FILE", help="backfill and priorities as this slurm.conf has them"
    )
    slurm.add_argument("--room-after", metavar="SECONDS", type=float, default=300.0, help="300")
    read = parser.add_argument_group("how to read")
    read.add_argument(
        "--tres", metavar="NAME", default="", help="what counts as a device: gres/gpu, node ..."
    )
    read.add_argument("--timezone", metavar="ZONE", help="of sacct's times; this machine's")
    out = parser.add_argument_group("what to write")
    out.add_argument("--json", action="store_true", help="all figures as JSON")
    out.add_argument("--html", metavar="FILE", help="one self-contained page")
    out.add_argument("--anonymise", metavar="FILE", help="only write the jobs without names")
    out.add_argument("--processes", metavar="N", type=positive, default=0, help="all cores")
    out.add_argument("--no-what-if", action="store_true", help="try nothing but what was asked")


def _share(text: str) -> float:
    """Parse a load, as an argparse type."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is no share of the devices, as in 1.3")
    return value


def main(arguments: argparse.Namespace) -> int:
    """Run the verb. Raises PodwrightError."""
    from podwright.errors import InvalidRequest
    from podwright.replay import SACCT_COMMAND, example, read_trace

    if arguments.fields:
        print(f"{SACCT_COMMAND} > sacct.txt")
        return 0
    if bool(arguments.trace) == arguments.example:
        raise InvalidRequest(
            "name a trace, or say --example",
            operation="replay jobs",
            would_work="podwright replay --example",
        )
    if arguments.guests or arguments.share or arguments.part:
        from podwright.cli.replay._guests import replay_guests

        bar = _Progress(sys.stderr)
        return replay_guests(arguments, _zone(arguments.timezone), bar.show, bar.clear)
    if arguments.html:
        from podwright.replay import html

        html.check()  # before any long work
        _check_place(arguments.html)
    ways, devices = _ways(arguments)
    if arguments.example:
        trace = example(arguments.seed, devices=devices)
    else:
        trace = read_trace(arguments.trace, zone=_zone(arguments.timezone), tres=arguments.tres)
    if arguments.anonymise:
        return _anonymise(trace, arguments.anonymise)
    if arguments.load:
        from podwright.replay import stretch_for, stretched

        trace = stretched(trace, stretch_for([trace], [0.0], devices, arguments.load))
    return _replay(arguments, trace, ways)


def _replay(arguments: argparse.Namespace, trace: Trace, ways: list[ReplayWay]) -> int:
    from podwright.replay import replay

    bar = _Progress(sys.stderr)
    report = replay(
        trace,
        ways,
        _slurm(arguments),
        _chances(arguments),
        what_if=not arguments.no_what_if,
        processes=arguments.processes,
        progress=bar.show,
    )
    bar.clear()
    _print(report, arguments)
    return 0


def _print(report: Report, arguments: argparse.Namespace) -> None:
    if arguments.html:
        from podwright.replay import html

        _write(arguments.html, html.page(report))
    if arguments.json:
        import json

        print(json.dumps(report.figures, indent=2, allow_nan=False))
        return
    from podwright.cli.replay._show import lines

    for line in lines(report.figures):
        print(line)
    if arguments.html:
        print(f"\nthe page: {arguments.html}")


def _anonymise(trace: Trace, path: str) -> int:
    import io

    from podwright.replay import write_anonymous

    text = io.StringIO()
    write_anonymous(trace, text)
    _write(path, text.getvalue())
    from podwright.cli.replay._show import left_out

    print(f"{path}: {len(trace)} jobs, without names or dates")
    for line in left_out(trace.skipped.figures()):
        print(line)
    return 0


def _write(path: str, text: str) -> None:
    from pathlib import Path

    from podwright.errors import InvalidRequest

    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidRequest(str(error.strerror), operation=f"write {path}") from None


def _check_place(path: str) -> None:
    """Raise InvalidRequest when a file cannot be written there."""
    from pathlib import Path

    from podwright.errors import InvalidRequest

    place = Path(path)
    if place.is_dir() or not place.absolute().parent.is_dir():
        problem = "it is a folder" if place.is_dir() else "there is no such folder"
        raise InvalidRequest(f"{path}: {problem}", operation="write the page")


def _ways(arguments: argparse.Namespace) -> tuple[list[ReplayWay], int]:
    from podwright.errors import InvalidRequest
    from podwright.replay import gpu_ways, pod_size, pod_ways

    words, policies = _list(arguments.ways), _list(arguments.policy)
    if arguments.gpus:
        from podwright.fabric import FabricError, load_cluster

        if arguments.pod or policies or arguments.hosts:
            raise InvalidRequest(
                "--pod, --policy and --hosts are for devices behind a fabric",
                operation="replay on GPU nodes",
                would_work="--gpus FILE --ways shared,exclusive",
            )
        try:
            cluster = load_cluster(arguments.gpus)
        except FabricError as error:
            raise InvalidRequest(str(error).removesuffix("."), operation="read GPU nodes") from None
        return gpu_ways(words or ["shared", "exclusive"], cluster), cluster.size
    size = pod_size(arguments.pod or "pod64")
    if not words:
        words = ["native"] if policies else ["native", *_divided(size)]
    return pod_ways(words, size, policies, _hosts(arguments.hosts)), size


def _list(text: str | None) -> list[str]:
    """Return the words between commas, each once."""
    return list(dict.fromkeys(word.strip() for word in (text or "").split(",") if word.strip()))


def _divided(size: int) -> list[str]:
    """Return the fixed ways that most sites would try for a pod: half small partitions, half
    large.
    """
    if size < 64:
        return []
    return [f"static:{size // 8}x4+{size // 32}x16", f"host-mapping:{size // 16}x16"]


def _hosts(text: str | None) -> Any:
    import re

    from podwright.errors import InvalidRequest
    from podwright.replay import HostKind

    if not text:
        return None
    match = re.fullmatch(r"([1-9]\d{0,5})x([1-9]\d{0,3})(?:x([1-9]\d{0,5}))?", text)
    if match is None:
        raise InvalidRequest(f"{text!r} is not understood", would_work="--hosts 16x64x512")
    return HostKind(int(match[1]), int(match[2]), int(match[3] or 0) << 30)


def _slurm(arguments: argparse.Namespace) -> SlurmModel:
    from pathlib import Path

    from podwright.errors import InvalidRequest
    from podwright.replay import SlurmModel, from_conf
    from podwright.slurm.site import files

    base = SlurmModel(room_s=arguments.room_after)
    if not arguments.slurm_conf:
        return base
    path = Path(arguments.slurm_conf)
    files.read(path)
    settings = {}
    for line in files.lines(path):
        key, equals, value = line.partition("=")
        if equals:
            settings[key.strip().lower()] = value.strip()
    try:
        return from_conf(settings, base)
    except ValueError as error:
        raise InvalidRequest(f"{arguments.slurm_conf}: {error}") from None


def _chances(arguments: argparse.Namespace) -> Chances:
    import math

    from podwright.errors import InvalidRequest
    from podwright.replay import Chances

    if not 0 <= arguments.movable <= 100:
        raise InvalidRequest("--movable is a share from 0 to 100 percent")
    if arguments.mtbf is not None and not arguments.mtbf > 0:
        raise InvalidRequest("--mtbf is a number of days above 0")
    return Chances(
        seed=arguments.seed,
        movable=arguments.movable / 100,
        move_s=arguments.move_time,
        mtbf_s=arguments.mtbf * 86400 if arguments.mtbf else math.inf,
    )


def _zone(name: str | None) -> Any:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    from podwright.errors import InvalidRequest

    try:
        return ZoneInfo(name) if name else None
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidRequest(
            f"there is no time zone {name!r}", would_work="Europe/Berlin"
        ) from None


class _Progress:
    """A line on a terminal with the progress and the remaining time. Nothing is printed
    elsewhere.
    """

    def __init__(self, out: Any) -> None:
        self._out = out if out.isatty() else None
        self._began = self._shown = time.monotonic()

    def show(self, done: int, total: int) -> None:
        """Show how many of all jobs are simulated."""
        now = time.monotonic()
        if self._out is None or now - self._shown < 0.5 or not done:
            return
        self._shown = now
        left = (now - self._began) / done * (total - done)
        self._out.write(f"\r{done / total:4.0%} of {total} jobs, {left:.0f} s left \x1b[K")
        self._out.flush()

    def clear(self) -> None:
        """Clear the line."""
        if self._out is not None:
            self._out.write("\r\x1b[K")
            self._out.flush()
