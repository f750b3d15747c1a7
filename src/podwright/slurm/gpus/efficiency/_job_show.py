"""A job's report as text, as JSON, in one line, and as a plot. Pure."""

from __future__ import annotations

from typing import Any
from xml.sax.saxutils import escape

from podwright.slurm.gpus.efficiency._job_report import Efficiency, amount, span
from podwright.slurm.gpus.efficiency._samples import GpuUse

#: Lines of a plot, told apart also by those who do not tell all colours apart (Okabe and Ito).
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999933", "#000000")
_WIDE, _HIGH, _LEFT, _TOP = 720, 260, 48, 28
_POINTS = 720  # of a line: more is not to be seen


def line(found: Efficiency) -> str:
    """One line, as for Slurm's AdminComment."""
    job = found.job
    parts = []
    if found.gpu_load is not None:
        parts.append(f"GPUs {found.gpu_load:.0f} % busy, {found.gpus_used} of {job.gpus} used")
    elif job.gpu_peak is not None:
        parts.append(f"GPUs at most {job.gpu_peak} % busy")
    if found.cores is not None:
        parts.append(f"cores {found.cores:.1f} of {job.cpus}")
    if found.memory is not None:
        parts.append(f"memory {_of(found.memory, job.memory)}")
    ask = " ".join(advice.ask for advice in found.advice if advice.ask.startswith("--"))
    return "; ".join([*parts, *([f"next time {ask}"] if ask else [])]) or "nothing was measured"


def _of(used: int, had: int) -> str:
    """had: 0 where Slurm does not count it."""
    return f"{amount(used)} of {amount(had)}" if had else amount(used)


def facts(found: Efficiency) -> list[tuple[str, object]]:
    """What there is to say of the job as a whole, by name."""
    job = found.job
    rows: list[tuple[str, object]] = [
        ("Job", f"{job.id} {job.name}, {job.state.lower()}"),
        ("Waited", span(job.waited)),
        ("Ran", span(job.seconds) + (f" of {span(job.limit)}" if job.limit else "")),
        ("Nodes", f"{job.nodes} ({job.node_list})"),
    ]
    if found.cores is not None:
        share = 100 * found.cores / job.cpus if job.cpus else 0
        rows.append(("Cores", f"{found.cores:.1f} of {job.cpus} at work ({share:.0f} %)"))
    else:
        why = "is not gathered (JobAcctGatherType)" if job.end else "is known when its steps end"
        rows.append(("Cores", f"{job.cpus}; their use {why}"))
    if found.memory is not None:
        rows.append(("Memory", f"{_of(found.memory, job.memory)} at most"))
    if found.gpu_load is not None:
        rows.append(("GPUs", f"{found.gpus_used} of {job.gpus} used, {found.gpu_load:.0f} % busy"))
    elif job.gpu_peak is not None:
        rows.append(("GPUs", f"{job.gpus}, at most {job.gpu_peak} % busy (Slurm's accounting)"))
    elif job.gpus:
        rows.append(("GPUs", f"{job.gpus}; their use was not sampled"))
    if found.idle_start is not None:
        rows.append(("Before first use", span(found.idle_start)))
    return rows


def gpu_rows(found: Efficiency) -> list[tuple[object, ...]]:
    """A row for each GPU: node, number, busy, load, highest, memory, samples."""
    return [
        (
            use.node,
            use.number,
            f"{use.load:.0f} %",
            f"{use.peak} %",
            f"{100 * use.busy:.0f} %",
            amount(use.memory),
            amount(use.most),
            amount(use.total),
            use.samples,
        )
        for use in found.uses
    ]


def advice(found: Efficiency) -> str:
    """The words, a line each."""
    if found.advice:
        return "\n".join(f"- {one}." for one in found.advice)
    if found.source == "nothing" and found.job.gpus:
        return "- its GPUs' use is not known: docs/slurm/gpu-efficiency.md says how it is sampled."
    return "- it used what it had."


def tree(found: Efficiency, *, series: bool = False) -> dict[str, Any]:
    """For JSON, which has memory in MiB. series: with every sample."""
    job = found.job
    out = found._asdict()
    out["memory"] = _mib(found.memory)
    sizes = {key: _mib(getattr(job, key)) for key in ("memory", "used_memory", "gpu_memory")}
    out["job"] = {**job._asdict(), **sizes, "waited": job.waited}
    out["uses"] = [_use_tree(use, series=series) for use in found.uses]
    out["advice"] = [one._asdict() for one in found.advice]
    out["summary"] = line(found)
    return out


def _use_tree(use: GpuUse, *, series: bool) -> dict[str, Any]:
    sizes = {"total": use.total >> 20, "most": use.most >> 20, "memory": use.memory / (1 << 20)}
    out = {**use._asdict(), **sizes, "series": [(t, load, m >> 20) for t, load, m in use.series]}
    return out if series else {key: value for key, value in out.items() if key != "series"}


def _mib(size: int | None) -> int | None:
    return size and size >> 20


def plot(found: Efficiency) -> str:
    """The load of each GPU over time as SVG."""
    uses = found.uses
    times = [t for use in uses for t, _, _ in use.series]
    start = min([found.job.start or min(times, default=0), *times], default=0)
    width = max(max(times, default=1) - start, 1)
    legend = 18 * ((len(uses) + 3) // 4)
    height = _TOP + _HIGH + 40 + legend
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDE + _LEFT + 16}" height="{height}"'
        ' font-family="sans-serif" font-size="12">',
        f"<title>{escape(f'GPU load of job {found.job.id}')}</title>",
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{_LEFT}" y="18">{escape(f"Job {found.job.id}: {line(found)}")}</text>',
    ]
    for percent in (0, 25, 50, 75, 100):
        y = _TOP + _HIGH * (1 - percent / 100)
        out.append(f'<path d="M{_LEFT} {y:.0f}h{_WIDE}" stroke="#ddd"/>')
        out.append(f'<text x="{_LEFT - 8}" y="{y + 4:.0f}" text-anchor="end">{percent} %</text>')
    for part in range(5):
        x = _LEFT + _WIDE * part / 4
        label = span(width * part / 4)
        anchor = ("start", "middle", "middle", "middle", "end")[part]
        out.append(
            f'<text x="{x:.0f}" y="{_TOP + _HIGH + 18}" text-anchor="{anchor}">{label}</text>'
        )
    for n, use in enumerate(uses):
        colour = _COLOURS[n % len(_COLOURS)]
        dash = ' stroke-dasharray="6 3"' if n >= len(_COLOURS) else ""
        step = -(-len(use.series) // _POINTS) or 1
        points = " ".join(
            f"{_LEFT + _WIDE * (t - start) / width:.1f},{_TOP + _HIGH * (1 - load / 100):.1f}"
            for t, load, _ in use.series[::step]
        )
        out.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"{dash}/>'
        )
        x, y = _LEFT + (n % 4) * _WIDE / 4, _TOP + _HIGH + 42 + 18 * (n // 4)
        name = escape(f"{use.node} GPU {use.number}: {use.load:.0f} %")
        out.append(f'<path d="M{x:.0f} {y - 4}h16" stroke="{colour}" stroke-width="3"{dash}/>')
        out.append(f'<text x="{x + 22:.0f}" y="{y}">{name}</text>')
    return "\n".join([*out, "</svg>", ""])
