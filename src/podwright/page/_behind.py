"""What stands behind a page, as far as the page knows: callers, and a server that answers them."""

from __future__ import annotations

from typing import Any, Protocol


class CallerRole(Protocol):
    """A caller's role."""

    @property
    def value(self) -> str:
        """Its name."""
        ...


class Who(Protocol):
    """A caller."""

    @property
    def name(self) -> str:
        """A user's name, or `anonymous`."""
        ...

    @property
    def role(self) -> CallerRole:
        """What it may do."""
        ...


class PageBackend(Protocol):
    """What stands behind the page."""

    def anonymous(self) -> Who | None:
        """Who shows nothing; None where that one sees nothing."""
        ...

    async def by_token(self, token: str) -> Who:
        """The caller of a one-time link. Raises wire.Unauthenticated."""
        ...

    async def by_key(self, name: str, key: str) -> Who:
        """The caller of an access key. Raises wire.PodwrightError."""
        ...

    def by_proxy(self, name: str) -> Who:
        """The caller whom the site's proxy names. Raises wire.Unauthenticated for no user here."""
        ...

    def known(self, who: Who) -> bool:
        """Is it still a user here, in the same role?"""
        ...

    async def listed(self, who: Who, method: str) -> Any:
        """One of the lists, whole, as this caller sees it. Raises wire.PodwrightError."""
        ...

    async def act(self, who: Who, method: str, body: bytes) -> bytes:
        """Carry out a call; the reply as JSON. Raises wire.PodwrightError."""
        ...

    def audience(self, who: Who) -> str:
        """A name for all who see the same as this caller."""
        ...

    async def own(self, who: Who) -> str | None:
        """Its name, where it sees of others' things less than all; None: it sees all. Raises
        wire.PodwrightError where nothing is told now."""
        ...

    def counted(self) -> int:
        """Grows with every change."""
        ...

    def describe(self) -> dict[str, object]:
        """The server, for the page's head."""
        ...


class Minutes(Protocol):
    """What was. All raise wire.PodwrightError."""

    async def series(self, since: int, until: int, step: int) -> Any:
        """Sums of minutes since 1970, a point for each step."""
        ...

    async def at(self, when: int, *, own: str | None = None) -> Any:
        """What was at a minute since 1970. own: the name of one who sees no others' things."""
        ...
