"""Shows a job's report as text, as JSON, in one line, and as a plot. Pure."""

from __future__ import annotations

from typing import Any
from xml.sax.saxutils import escape

from podwright.gpu.efficiency._job_report import Efficiency, amount, span
from podwright.gpu.efficiency._sacct_jobs import AccountedJob
from podwright.gpu.efficiency._samples import GpuUse
from podwright.ground.tables import card, table

#: The colours of a plot's lines, which colour-blind readers can distinguish (Okabe and Ito).
_PLOT_COLOURS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
    "#999933",
    "#000000",
)
_PLOT_WIDTH, _PLOT_HEIGHT, _PLOT_LEFT, _PLOT_TOP = 720, 260, 48, 28
_MAX_POINTS = 720  # of a line: more is not to be seen


def text(efficiency: Efficiency) -> str:
    """The report for people: a card, a table of GPUs where there are samples, and advice."""
    sections = [card(_facts(efficiency))]
    if efficiency.uses:
        header = ("Node", "GPU", "Load", "Highest", "Time busy", "Memory", "Most", "Has", "Samples")
        sections.append(table(header, _gpu_rows(efficiency)))
    return "\n\n".join([*sections, f"Next time:\n{_advice(efficiency)}"])


def line(efficiency: Efficiency) -> str:
    """The report in one line."""
    job = efficiency.job
    phrases = []
    if efficiency.gpu_load is not None:
        phrases.append(
            f"GPUs {efficiency.gpu_load:.0f} % busy, {efficiency.gpus_used} of {job.gpus} used"
        )
    elif job.gpu_peak is not None:
        phrases.append(f"GPUs {_peak(job)}")
    if efficiency.cores is not None:
        phrases.append(f"cores {efficiency.cores:.1f} of {job.cpus}")
    if efficiency.memory is not None:
        phrases.append(f"memory {_used_of_granted(efficiency.memory, job.memory)}")
    options = " ".join(item.ask for item in efficiency.advice if item.ask.startswith("--"))
    return (
        "; ".join([*phrases, *([f"next time {options}"] if options else [])])
        or "nothing was measured"
    )


def _used_of_granted(used_bytes: int, granted_bytes: int) -> str:
    """granted_bytes: 0 where Slurm does not count it."""
    return (
        f"{amount(used_bytes)} of {amount(granted_bytes)}" if granted_bytes else amount(used_bytes)
    )


def _peak(job: AccountedJob) -> str:
    """What Slurm's accounting knows: of each task's sum over its GPUs, the highest."""
    if job.gpus == 1:
        return f"at most {job.gpu_peak} % busy"
    return f"at most {job.gpu_peak} % busy in one task, all of its GPUs together"


def _facts(efficiency: Efficiency) -> list[tuple[str, object]]:
    """The facts about the job as a whole, as (name, value)."""
    job = efficiency.job
    nodes_row = ("Nodes", f"{job.nodes} ({job.node_list})")
    if job.state:
        fact_rows: list[tuple[str, object]] = [
            ("Job", f"{job.id} {job.name}, {job.state.lower()}"),
            ("Waited", span(job.waited)),
            ("Ran", span(job.seconds) + (f" of {span(job.limit)}" if job.limit else "")),
            nodes_row,
        ]
    else:
        fact_rows = [
            ("Job", f"{job.id}; its state, cores and memory are not known: sacct does not answer"),
            ("Sampled for", span(job.seconds)),
            nodes_row,
        ]
    if efficiency.cores is not None:
        core_share = 100 * efficiency.cores / job.cpus if job.cpus else 0
        fact_rows.append(
            ("Cores", f"{efficiency.cores:.1f} of {job.cpus} at work ({core_share:.0f} %)")
        )
    elif job.state:
        missing_reason = (
            "is not gathered (JobAcctGatherType)" if job.end else "is known when its steps end"
        )
        fact_rows.append(("Cores", f"{job.cpus}; their use {missing_reason}"))
    if efficiency.memory is not None:
        fact_rows.append(("Memory", f"{_used_of_granted(efficiency.memory, job.memory)} at most"))
    if efficiency.gpu_load is not None:
        fact_rows.append(
            ("GPUs", f"{efficiency.gpus_used} of {job.gpus} used, {efficiency.gpu_load:.0f} % busy")
        )
    elif job.gpu_peak is not None:
        fact_rows.append(("GPUs", f"{job.gpus}, {_peak(job)} (Slurm's accounting)"))
    elif efficiency.uses:
        fact_rows.append(("GPUs", f"{job.gpus}; the driver does not report the load of all"))
    elif job.gpus:
        reason = "was not sampled, and Slurm's accounting has none"
        fact_rows.append(("GPUs", f"{job.gpus}; their use is not known: it {reason}"))
    if efficiency.idle_start is not None:
        fact_rows.append(("Before first use", span(efficiency.idle_start)))
    return fact_rows


def _gpu_rows(efficiency: Efficiency) -> list[tuple[object, ...]]:
    """One row per GPU: node, number, busy, load, highest load, memory, samples."""
    return [
        (
            use.node,
            use.number,
            _percent(use.load),
            _percent(use.peak),
            _percent(use.busy and 100 * use.busy),
            "" if use.memory is None else amount(use.memory),
            "" if use.most is None else amount(use.most),
            amount(use.total),
            use.samples,
        )
        for use in efficiency.uses
    ]


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0f} %"


def _advice(efficiency: Efficiency) -> str:
    """The advice in words, one item per line."""
    if efficiency.advice:
        return "\n".join(f"- {item}." for item in efficiency.advice)
    if efficiency.gpu_load is None and efficiency.job.gpus:
        return "- its GPUs' use is not known: docs/slurm/gpu-efficiency.md says how it is sampled."
    return "- it used what it had."


def tree(efficiency: Efficiency) -> dict[str, Any]:
    """The report for JSON, with memory in MiB."""
    job = efficiency.job
    document = efficiency._asdict()
    document["memory"] = _to_mib(efficiency.memory)
    sizes_mib = {
        field: _to_mib(getattr(job, field)) for field in ("memory", "used_memory", "gpu_memory")
    }
    document["job"] = {**job._asdict(), **sizes_mib, "waited": job.waited}
    document["uses"] = [_use_tree(use) for use in efficiency.uses]
    document["advice"] = [item._asdict() for item in efficiency.advice]
    document["summary"] = line(efficiency)
    return document


def _use_tree(gpu_use: GpuUse) -> dict[str, Any]:
    sizes_mib = {
        "total": gpu_use.total >> 20,
        "most": _to_mib(gpu_use.most),
        "memory": gpu_use.memory and gpu_use.memory / (1 << 20),
    }
    document = {**gpu_use._asdict(), **sizes_mib}
    # The report's readers know the field as "held".
    document["held"] = document.pop("had_process")
    del document["series"]
    return document


def _to_mib(byte_count: int | None) -> int | None:
    return byte_count and byte_count >> 20


def plot(efficiency: Efficiency) -> str:
    """The load of each GPU over time, as SVG."""
    gpu_uses = efficiency.uses
    timestamps = [timestamp for use in gpu_uses for timestamp, _ in use.series]
    start_time = min([efficiency.job.start or min(timestamps, default=0), *timestamps], default=0)
    duration = max(max(timestamps, default=1) - start_time, 1)
    legend_height = 18 * ((len(gpu_uses) + 3) // 4)
    svg_height = _PLOT_TOP + _PLOT_HEIGHT + 40 + legend_height
    svg_lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_PLOT_WIDTH + _PLOT_LEFT + 16}" '
        f'height="{svg_height}"'
        ' font-family="sans-serif" font-size="12">',
        f"<title>{escape(f'GPU load of job {efficiency.job.id}')}</title>",
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{_PLOT_LEFT}" '
        f'y="18">{escape(f"Job {efficiency.job.id}: {line(efficiency)}")}</text>',
    ]
    for percent in (0, 25, 50, 75, 100):
        y = _PLOT_TOP + _PLOT_HEIGHT * (1 - percent / 100)
        svg_lines.append(f'<path d="M{_PLOT_LEFT} {y:.0f}h{_PLOT_WIDTH}" stroke="#ddd"/>')
        svg_lines.append(
            f'<text x="{_PLOT_LEFT - 8}" y="{y + 4:.0f}" text-anchor="end">{percent} %</text>'
        )
    for tick in range(5):
        x = _PLOT_LEFT + _PLOT_WIDTH * tick / 4
        tick_label = span(duration * tick / 4)
        text_anchor = ("start", "middle", "middle", "middle", "end")[tick]
        svg_lines.append(
            f'<text x="{x:.0f}" y="{_PLOT_TOP + _PLOT_HEIGHT + 18}" '
            f'text-anchor="{text_anchor}">{tick_label}</text>'
        )
    for gpu_index, gpu_use in enumerate(gpu_uses):
        colour = _PLOT_COLOURS[gpu_index % len(_PLOT_COLOURS)]
        dash_attribute = ' stroke-dasharray="6 3"' if gpu_index >= len(_PLOT_COLOURS) else ""
        sample_step = -(-len(gpu_use.series) // _MAX_POINTS) or 1
        points = " ".join(
            f"{_PLOT_LEFT + _PLOT_WIDTH * (timestamp - start_time) / duration:.1f},"
            f"{_PLOT_TOP + _PLOT_HEIGHT * (1 - load / 100):.1f}"
            for timestamp, load in gpu_use.series[::sample_step]
        )
        svg_lines.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" '
            f'stroke-width="1.5"{dash_attribute}/>'
        )
        x, y = (
            _PLOT_LEFT + (gpu_index % 4) * _PLOT_WIDTH / 4,
            _PLOT_TOP + _PLOT_HEIGHT + 42 + 18 * (gpu_index // 4),
        )
        legend_text = escape(f"{gpu_use.node} GPU {gpu_use.number}: {_percent(gpu_use.load)}")
        svg_lines.append(
            f'<path d="M{x:.0f} {y - 4}h16" stroke="{colour}" stroke-width="3"{dash_attribute}/>'
        )
        svg_lines.append(f'<text x="{x + 22:.0f}" y="{y}">{legend_text}</text>')
    return "\n".join([*svg_lines, "</svg>", ""])
