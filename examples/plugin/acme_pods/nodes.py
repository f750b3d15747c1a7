"""Acme's health check of a node, and its job script."""

from collections.abc import Iterator

from podwright.gpu.health import Check, CheckContext, Wrong
from podwright.gpu.templates import Template
from podwright.ground.judgement import Says


def label(context: CheckContext) -> Iterator[Wrong]:
    """The node's name says that it is Acme's."""
    host = context.seen.inventory.host
    if not host.startswith("acme"):
        yield Wrong(
            part="",
            problem=f"is called {host}",
            because="nobody finds it",
            source="Acme's rule for names",
            do="Rename it.",
            says=Says.YES,
        )


LABEL = Check(label)
HELLO = Template(
    "say hello from each node",
    "#!/bin/bash\n#SBATCH --nodes=@NODES@\n#SBATCH --gpus-per-node=@TYPE@@GPUS@\nsrun hostname\n",
)
