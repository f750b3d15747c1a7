"""The state of a twin service as text for people."""

from __future__ import annotations

from typing import Any


def status_text(service_place: str, status: dict[str, Any]) -> str:
    """Return where a service is, which state it answers with, and how much it has answered."""
    if status["age"] is None:
        sentence = f"It answers with all nodes idle: {status['no_state']}."
    else:
        sentence = f"It answers with the state of {status['age']} s ago."
    return (
        f"At {service_place}: Slurm {status['release']}, {status['warm']} warm.\n{sentence}\n"
        f"{status['answered']} questions answered, {status['refused']} refused, "
        f"{status['failed']} failed; {status['waiting']} wait."
    )
