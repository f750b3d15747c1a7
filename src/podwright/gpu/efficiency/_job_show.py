"""Shows a job's report as text, as JSON, in one line, and as a plot. Pure."""

from __future__ import annotations

from typing import Any
from xml.sax.saxutils import escape

from podwright.gpu.efficiency._job_report import Efficiency, amount, span
from podwright.gpu.efficiency._samples import GpuUse
from podwright.tables import card, table

#: The colours of a plot's lines, which colour-blind readers can distinguish (Okabe and Ito).
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999933", "#000000")
_WIDE, _HIGH, _LEFT, _TOP = 720, 260, 48, 28
_POINTS = 720  # of a line: more is not to be seen


def text(efficiency: Efficiency) -> str:
    """The report for people: a card, a table of GPUs where there are samples, and advice."""
    parts = [card(facts(efficiency))]
    if efficiency.uses:
        header = ("Node", "GPU", "Load", "Highest", "Time busy", "Memory", "Most", "Has", "Samples")
        parts.append(table(header, gpu_rows(efficiency)))
    return "\n\n".join([*parts, f"Next time:\n{advice(efficiency)}"])


def line(efficiency: Efficiency) -> str:
    """The report in one line, as for Slurm's AdminComment."""
    job = efficiency.job
    parts = []
    if efficiency.gpu_load is not None:
        parts.append(
            f"GPUs {efficiency.gpu_load:.0f} % busy, {efficiency.gpus_used} of {job.gpus} used"
        )
    elif job.gpu_peak is not None:
        parts.append(f"GPUs at most {job.gpu_peak} % busy")
    if efficiency.cores is not None:
        parts.append(f"cores {efficiency.cores:.1f} of {job.cpus}")
    if efficiency.memory is not None:
        parts.append(f"memory {_of(efficiency.memory, job.memory)}")
    ask = " ".join(advice.ask for advice in efficiency.advice if advice.ask.startswith("--"))
    return "; ".join([*parts, *([f"next time {ask}"] if ask else [])]) or "nothing was measured"


def _of(used: int, granted: int) -> str:
    """granted: 0 where Slurm does not count it."""
    return f"{amount(used)} of {amount(granted)}" if granted else amount(used)


def facts(efficiency: Efficiency) -> list[tuple[str, object]]:
    """The facts about the job as a whole, as (name, value)."""
    job = efficiency.job
    nodes = ("Nodes", f"{job.nodes} ({job.node_list})")
    if job.state:
        rows: list[tuple[str, object]] = [
            ("Job", f"{job.id} {job.name}, {job.state.lower()}"),
            ("Waited", span(job.waited)),
            ("Ran", span(job.seconds) + (f" of {span(job.limit)}" if job.limit else "")),
            nodes,
        ]
    else:
        rows = [
            ("Job", f"{job.id}; its state, cores and memory are not known: sacct does not answer"),
            ("Sampled for", span(job.seconds)),
            nodes,
        ]
    if efficiency.cores is not None:
        share = 100 * efficiency.cores / job.cpus if job.cpus else 0
        rows.append(("Cores", f"{efficiency.cores:.1f} of {job.cpus} at work ({share:.0f} %)"))
    elif job.state:
        reason = "is not gathered (JobAcctGatherType)" if job.end else "is known when its steps end"
        rows.append(("Cores", f"{job.cpus}; their use {reason}"))
    if efficiency.memory is not None:
        rows.append(("Memory", f"{_of(efficiency.memory, job.memory)} at most"))
    if efficiency.gpu_load is not None:
        rows.append(
            ("GPUs", f"{efficiency.gpus_used} of {job.gpus} used, {efficiency.gpu_load:.0f} % busy")
        )
    elif job.gpu_peak is not None:
        rows.append(("GPUs", f"{job.gpus}, at most {job.gpu_peak} % busy (Slurm's accounting)"))
    elif job.gpus:
        rows.append(("GPUs", f"{job.gpus}; their use was not sampled"))
    if efficiency.idle_start is not None:
        rows.append(("Before first use", span(efficiency.idle_start)))
    return rows


def gpu_rows(efficiency: Efficiency) -> list[tuple[object, ...]]:
    """One row per GPU: node, number, busy, load, highest load, memory, samples."""
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
        for use in efficiency.uses
    ]


def advice(efficiency: Efficiency) -> str:
    """The advice in words, one item per line."""
    if efficiency.advice:
        return "\n".join(f"- {item}." for item in efficiency.advice)
    if efficiency.source == "nothing" and efficiency.job.gpus:
        return "- its GPUs' use is not known: docs/slurm/gpu-efficiency.md says how it is sampled."
    return "- it used what it had."


def tree(efficiency: Efficiency, *, series: bool = False) -> dict[str, Any]:
    """The report for JSON, with memory in MiB. series: include every sample."""
    job = efficiency.job
    out = efficiency._asdict()
    out["memory"] = _mib(efficiency.memory)
    sizes = {key: _mib(getattr(job, key)) for key in ("memory", "used_memory", "gpu_memory")}
    out["job"] = {**job._asdict(), **sizes, "waited": job.waited}
    out["uses"] = [_use_tree(use, series=series) for use in efficiency.uses]
    out["advice"] = [item._asdict() for item in efficiency.advice]
    out["summary"] = line(efficiency)
    return out


def _use_tree(use: GpuUse, *, series: bool) -> dict[str, Any]:
    sizes = {"total": use.total >> 20, "most": use.most >> 20, "memory": use.memory / (1 << 20)}
    out = {**use._asdict(), **sizes, "series": [(t, load, m >> 20) for t, load, m in use.series]}
    # The report's readers know the field as "held".
    out["held"] = out.pop("had_process")
    return out if series else {key: value for key, value in out.items() if key != "series"}


def _mib(size: int | None) -> int | None:
    return size and size >> 20


def plot(efficiency: Efficiency) -> str:
    """The load of each GPU over time, as SVG."""
    uses = efficiency.uses
    times = [t for use in uses for t, _, _ in use.series]
    start = min([efficiency.job.start or min(times, default=0), *times], default=0)
    width = max(max(times, default=1) - start, 1)
    legend = 18 * ((len(uses) + 3) // 4)
    height = _TOP + _HIGH + 40 + legend
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDE + _LEFT + 16}" height="{height}"'
        ' font-family="sans-serif" font-size="12">',
        f"<title>{escape(f'GPU load of job {efficiency.job.id}')}</title>",
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{_LEFT}" y="18">{escape(f"Job {efficiency.job.id}: {line(efficiency)}")}</text>',
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
