"""The server behind a page, as the page knows it: callers, and a backend that answers them."""

from __future__ import annotations

from typing import Any, Protocol

from podwright.page._query_parameters import TableQuery


class CallerRole(Protocol):
    """A caller's role."""

    @property
    def value(self) -> str:
        """The name of the role."""
        ...


class Who(Protocol):
    """A caller."""

    @property
    def name(self) -> str:
        """The user's name, or `anonymous`."""
        ...

    @property
    def role(self) -> CallerRole:
        """The caller's role, which decides what it may do."""
        ...


class PageBackend(Protocol):
    """The server behind the page."""

    def anonymous(self) -> Who | None:
        """Return the caller without credentials; None where such a caller may see nothing."""
        ...

    async def by_token(self, token: str) -> Who:
        """Return the caller of a one-time link, and use up the link.

        Raises wire.Unauthenticated for a link that was used before, wire.Unavailable for one of too
        many.
        """
        ...

    async def by_key(self, name: str, key: str) -> Who:
        """Return the caller of an access key. Raises wire.PodwrightError."""
        ...

    def by_proxy(self, name: str) -> Who:
        """Return the user whom the site's proxy names.

        Raises wire.Unauthenticated for an unknown user.
        """
        ...

    def known(self, who: Who) -> bool:
        """Return whether the caller is still a user of this server, in the same role."""
        ...

    async def listed(self, who: Who, method: str) -> Any:
        """Return one of the lists, whole, as this caller may see it. Raises wire.PodwrightError."""
        ...

    async def folded(self) -> bool:
        """Return whether the pod is so large that it is shown by its link domains."""
        ...

    async def overview(self, who: Who) -> dict[str, dict[str, object]]:
        """Return the topics of a folded pod. Raises wire.PodwrightError."""
        ...

    async def opened(self, who: Who, domain: str) -> dict[str, dict[str, object]]:
        """Return the topics of a link domain's devices. Raises wire.PodwrightError."""
        ...

    async def table(self, who: Who, query: TableQuery) -> dict[str, object]:
        """Return `topics` with a part of a table, and `next`. Raises wire.PodwrightError."""
        ...

    async def act(self, who: Who, method: str, body: bytes) -> bytes:
        """Carry out a call. Return its reply as JSON. Raises wire.PodwrightError."""
        ...

    def audience(self, who: Who) -> str:
        """Return a name that is equal for all callers who see the same as this one."""
        ...

    async def own(self, who: Who) -> str | None:
        """Return the caller's name if it may not see all objects of others; None if it sees all.

        Raises wire.PodwrightError where nothing is shown now.
        """
        ...

    def counted(self) -> int:
        """Return a number that grows with every change."""
        ...

    def conditions(self, who: Who) -> dict[str, object] | None:
        """Return the server's own conditions, or None for a caller who may not see them.

        read_only: why nothing can be changed, or empty. standbys: number of servers that wait to
        take over; None: none can. silent_schedulers: by name, since when. cabling: what the last
        test of each cluster found, as (cluster, machine, problem).
        """
        ...

    def describe(self) -> dict[str, object]:
        """Return the server's description for the page's head."""
        ...


class Minutes(Protocol):
    """The pod's past. All methods raise wire.PodwrightError."""

    async def series(self, since: int, until: int, step: int, *, own: str | None = None) -> Any:
        """Return the sums of minutes since 1970, a point for each step. own: as for `at`."""
        ...

    async def at(self, when: int, *, own: str | None = None, domain: str = "") -> Any:
        """Return the pod at a minute since 1970.

        own: the name of a caller who may not see other users' objects. domain: of a large pod, the
        link domain whose devices are shown.
        """
        ...
