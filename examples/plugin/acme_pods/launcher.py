"""Starts instances without MPI, and says so: `poprun --launcher acme`."""

from collections.abc import Mapping, Sequence

from podwright.launcher import Command, Plan, RunFolder


class Acme:
    """A real one gives Acme's command as the words of the `Command`."""

    def command(
        self,
        plan: Plan,
        folder: RunFolder,
        wrapper: Sequence[str],
        program: Sequence[str],
        remotes: object = (),
    ) -> Command:
        """No words: podwright starts the instances itself."""
        return Command((), {"ACME": "yes"}, ("Acme's launcher starts them",))


def launcher(environ: Mapping[str, str]) -> Acme:
    """What `--launcher acme` stands for."""
    return Acme()
