"""`podwright slurm serve-lint`: tells at submission what lint finds in a job script."""

from __future__ import annotations

from podwright.cli.shared._print_result import log_to_stderr
from podwright.cli.shared._verb_definition import Verb
from podwright.gpu.command._gpu_configure_options import LINT_SOCKET
from podwright.ground import option_rows as opt
from podwright.ground.option_rows import positive


class _ServeLintOptions(opt.OptionTable):
    socket = opt.text("", "PATH", LINT_SOCKET)
    slurm_user = opt.optional("who runs slurmctld (SlurmUser, or the user slurm)", "USER")
    workers = opt.value("scripts read at a time (2)", "N", positive, 2)


def _run(arguments: _ServeLintOptions) -> int:
    import os
    import time
    from pathlib import Path

    from podwright.errors import Unavailable
    from podwright.gpu.lint import cache_path, find_site
    from podwright.gpu.submission import serve, slurmctld_uid
    from podwright.hosts import tell_ready
    from podwright.slurm.site.blocking_commands import ask_slurm

    log_to_stderr()
    # Slurm itself reports limits of partitions at submission.
    site = find_site(ask_slurm, cache_path(), time.time())._replace(partitions={})
    askers = frozenset({0, os.geteuid(), slurmctld_uid(arguments.slurm_user)})
    try:
        serve(Path(arguments.socket), site, askers, workers=arguments.workers, ready=tell_ready)
    except OSError as error:
        raise Unavailable(
            f"{error.filename or arguments.socket}: {error.strerror}",
            operation="answer job_submit",
            would_work="--socket=PATH in a folder that this user may write to",
        ) from error
    return 0


VERBS = (
    Verb(
        "serve-lint",
        _ServeLintOptions,
        _run,
        help="read job scripts at submission, for job_submit",
        description="Answers job_submit.lua, which `configure --gpus --lint` writes. Runs where "
        "slurmctld runs, as any user: only root, SlurmUser and its own user are answered.",
    ),
)
