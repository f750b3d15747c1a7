"""Acme's own rule for job scripts."""

from collections.abc import Iterator

from podwright.gpu.lint import Case, Found, Rule


def mail(case: Case) -> Iterator[Found]:
    """Mail goes to Acme's people alone."""
    for line, given in case.script.directives:
        if given.name == "mail-user" and not given.value.endswith("@acme.example"):
            yield Found(line, f"Acme's mail server takes no mail for {given.value}")


MAIL = Rule(
    "acme-mail",
    "mistake",
    "--mail-user is an address of Acme's",
    "https://acme.example/mail",
    mail,
)
