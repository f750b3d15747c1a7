"""The screen of `podwright top`: the pod above, a table below, keys at the bottom."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, ParamSpec, Protocol

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.timer import Timer
from textual.widgets import DataTable, Footer, Input, Static, Tab, Tabs

from podwright.errors import PodwrightError
from podwright.page import Snapshot
from podwright.top._picture import Cell, draw, kept_marks, legend, letters
from podwright.top._rows import TABS, facts, held_by, queue_name, rows

#: A refresh that took t seconds is followed by a pause of at least this many times t.
_SHARE = 10.0


P = ParamSpec("P")


class PodFeed(Protocol):
    """The calls of `Feed` that the app makes."""

    def snapshot(self) -> Snapshot:
        """Return everything to show."""

    def explain(self, name: str) -> list[str]:
        """Return why something is in its state."""

    def drain(self, machine: str) -> None:
        """Let a machine take nothing new."""

    def resume(self, machine: str) -> None:
        """Let a machine take partitions again."""


class _Words(ModalScreen[bool]):
    """A text in front of everything else, with a question or without."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes", show=False),
        Binding("n,escape,enter,q,x", "answer(False)", "No", show=False),
    ]

    def __init__(self, lines: list[str], ask: bool = False) -> None:
        super().__init__()
        self._lines, self._ask = lines, ask

    def compose(self) -> ComposeResult:
        last = "y: yes   n: no" if self._ask else "Esc: back"
        text = Text("\n".join([*self._lines, "", last]))
        with VerticalScroll(id="words"):
            yield Static(text)

    def action_answer(self, answer: bool) -> None:
        """Close the text with this answer."""
        self.dismiss(answer if self._ask else False)

    def on_click(self) -> None:
        """Close the text on a click, unless it asks a question."""
        if not self._ask:
            self.dismiss(False)


class TopApp(App[None]):
    """The app. title: the first line. every: seconds between two refreshes."""

    CSS = """
    #title { height: 1; background: $primary-darken-2; color: $text; }
    #pod { height: auto; max-height: 40%; }
    #legend { height: 1; color: $text-muted; }
    #filter { display: none; height: 1; border: none; padding: 0; }
    DataTable { height: 1fr; }
    _Words { align: center middle; }
    #words { width: 80%; height: auto; max-height: 80%; border: round $primary; padding: 0 1;
             background: $surface; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(n + 1), f"tab({n})", tab.name, show=False) for n, tab in enumerate(TABS)),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("s", "sort", "Sort"),
        Binding("x,enter", "explain", "Explain", key_display="x", priority=False),
        Binding("d", "drain", "Drain"),
        Binding("r", "resume", "Resume"),
        Binding("escape", "unfilter", "All", show=False),
        Binding("q,ctrl+c", "quit", "Quit", key_display="q", priority=True),
    ]
    ENABLE_COMMAND_PALETTE = False

    def __init__(
        self,
        feed: PodFeed,
        title: str,
        interval: float = 1.0,
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        self._feed, self._title, self._interval, self._now = feed, title, interval, now
        self.snapshot: Snapshot = {}
        self.tab = 0
        self.order = [(tab.sort, tab.down) for tab in TABS]
        self._filter = ""
        self._problem = ""
        self._next: Timer | None = None
        self._drawn: tuple[object, ...] = ()
        self._listed: tuple[object, ...] = ()

    def compose(self) -> ComposeResult:
        """Yield the widgets, from the top."""
        yield Static(id="title")
        with Vertical():
            with VerticalScroll(id="pod"):
                yield Static(id="devices")
            yield Static(id="legend")
            yield Tabs(*(Tab(f"{n + 1} {tab.name}", id=f"t{n}") for n, tab in enumerate(TABS)))
            yield Input(placeholder="words that rows must have; -word: must not", id="filter")
            yield DataTable(cursor_type="row", zebra_stripes=True)
        yield Footer()

    def on_mount(self) -> None:
        """Start refreshing."""
        self.query_one("#title", Static).update(self._title)
        self.query_one("#pod").can_focus = False
        self.query_one(Tabs).can_focus = False
        self.query_one(DataTable).focus()
        self._refresh()

    @work(thread=True, exclusive=True, group="look")
    def _refresh(self) -> None:
        started = time.monotonic()
        try:
            seen, problem = self._feed.snapshot(), ""
        except PodwrightError as error:
            seen, problem = {}, error.problem
        duration = time.monotonic() - started
        self._while_open(self._show, seen, problem, max(self._interval, _SHARE * duration))

    def _while_open(self, show: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Call `show` in the app's thread, unless the user has quit since the call began.

        An answer may arrive while Textual closes the app. The widgets are removed before the
        workers are cancelled, so a worker that drew its answer at that moment would fail.
        """

        def show_if_open() -> None:
            if self.is_running:
                show(*args, **kwargs)

        self.call_from_thread(show_if_open)

    def _show(self, seen: Snapshot, problem: str, pause: float) -> None:
        if problem != self._problem:
            self._problem = problem
            title = f"{self._title}   {problem}" if problem else self._title
            self.query_one("#title", Static).update(
                Text(title, style="bold red" if problem else "")
            )
        if not problem and seen != self.snapshot:
            self.snapshot = seen
        self.refresh_rows()
        if self._next:
            self._next.stop()  # a refresh that the user requested in between
        self._next = self.set_timer(pause, self._refresh)

    def on_resize(self) -> None:
        """Draw anew, since the width determines how the pod is folded."""
        self.refresh_rows()

    def refresh_rows(self) -> None:
        """Draw the snapshot. Unchanged parts are not sent again, since connections may be slow."""
        self._fill()
        width = max(self.size.width - 16, 16)
        if (width, self.snapshot) == self._drawn:
            return
        self._drawn = (width, self.snapshot)
        text = Text()
        for domain in draw(self.snapshot, width):
            text.append(f"{domain.name:>6} ", "dim")
            for cell in domain.cells:
                text.append(cell.letter, cell.style)
            text.append(f" {domain.free}/{domain.size}\n", "dim")
        text.rstrip()
        self.query_one("#devices", Static).update(text)
        self.query_one("#legend", Static).update(legend(self.snapshot))

    def _fill(self) -> None:
        table: DataTable[Any] = self.query_one(DataTable)
        tab, (sort, descending) = TABS[self.tab], self.order[self.tab]
        table_rows = rows(
            tab, self.snapshot, self._now(), words=self._filter, sort=sort, down=descending
        )
        marks = self._marks(tab.name, [key for key, _ in table_rows])
        listed = (self.tab, sort, descending, table_rows, marks)
        if listed == self._listed:
            return
        same = bool(self._listed) and self._listed[0] == self.tab
        self._listed = listed
        key, scroll = self._selected() if same else "", table.scroll_y
        table.clear(columns=True)
        texts = [[Text(str(value)) for value in values] for _, values in table_rows]
        for n, (heading, _) in enumerate(tab.columns):
            arrow = ("▼" if descending else "▲") if n == sort else ""
            # The width is given, because Textual would measure it later and draw twice.
            widths = (cells[n].cell_len for cells in texts)
            width = max((len(heading) + 1, *widths)) if heading else 1
            table.add_column(f"{heading}{arrow}", key=str(n), width=width)
        for (row_key, _), cells in zip(table_rows, texts, strict=True):
            if row_key in marks:
                cells[0] = Text(marks[row_key].letter, marks[row_key].style)
            table.add_row(*cells, key=row_key)
        row_keys = [row_key for row_key, _ in table_rows]
        if key in row_keys:
            table.move_cursor(row=row_keys.index(key), animate=False, scroll=False)
            table.scroll_y = scroll

    def _marks(self, table: str, keys: list[str]) -> dict[str, Cell]:
        """Return how the rows of a table are drawn in the picture, by their keys."""
        if table == "Queue":
            marks = kept_marks(self.snapshot)
            names = {key: queue_name(key, self._item(key)) for key in keys}
            return {key: marks[name] for key, name in names.items() if name in marks}
        return letters(self.snapshot) if table == "Partitions" else {}

    def _selected(self) -> str:
        table: DataTable[Any] = self.query_one(DataTable)
        if not table.row_count:
            return ""
        return str(table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value or "")

    def _item(self, key: str) -> Mapping[str, Any]:
        for topic in TABS[self.tab].topics:
            item = self.snapshot.get(topic, {}).get(key)
            if isinstance(item, Mapping):
                return item
        return {}

    def action_tab(self, number: int) -> None:
        """Show another table."""
        self.query_one(Tabs).active = f"t{number}"
        self._open(number)

    def on_tabs_tab_activated(self, event: Tabs.TabActivated) -> None:
        """Show the table that a key or the mouse chose."""
        self._open(int(str(event.tab.id)[1:]))

    def _open(self, number: int) -> None:
        if number != self.tab:
            self.tab = number
            self._fill()

    def action_sort(self) -> None:
        """Sort by the next column."""
        sort, _ = self.order[self.tab]
        self.order[self.tab] = ((sort + 1) % len(TABS[self.tab].columns), False)
        self._fill()

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        """Sort by the column that was clicked, and on a second click in the other direction."""
        number = int(str(event.column_key.value))
        sort, descending = self.order[self.tab]
        self.order[self.tab] = (number, not descending if number == sort else False)
        self._fill()

    def action_filter(self) -> None:
        """Open the field for filter words."""
        field = self.query_one("#filter", Input)
        field.display = True
        field.focus()

    def action_unfilter(self) -> None:
        """Show all rows again."""
        field = self.query_one("#filter", Input)
        field.value, field.display = "", False
        self.query_one(DataTable).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter the rows after each letter."""
        self._filter = event.value
        self._fill()

    def on_input_submitted(self) -> None:
        """Go back to the rows. The filter stays."""
        self.query_one(DataTable).focus()

    def on_data_table_row_selected(self) -> None:
        """Explain the row, after Enter or a second click."""
        self.action_explain()

    def action_explain(self) -> None:
        """Explain the state of the row's partition or waiter; for other rows, show all facts."""
        key = self._selected()
        if key:
            self._explain(key, facts(key, self._item(key)))

    @work(thread=True, group="act")
    def _explain(self, key: str, known: list[str]) -> None:
        lines: list[str] = []
        if TABS[self.tab].name in ("Partitions", "Queue") and "/" not in key:
            try:
                lines = ["", *self._feed.explain(key)]
            except PodwrightError as error:
                lines = ["", error.problem]
        self._while_open(self.push_screen, _Words([*known, *lines]))

    def action_drain(self) -> None:
        """Ask for confirmation, and let the row's machine take nothing new."""
        if name := self._machine():
            partitions = held_by(self.snapshot, name)
            stay = (
                f"On it: {', '.join(partitions)}: they go on."
                if partitions
                else "Nothing lies on it."
            )
            lines = [f"Drain {name}? It takes nothing new.", stay]
            self.push_screen(_Words(lines, ask=True), lambda yes: self._acts("drain", name, yes))

    def action_resume(self) -> None:
        """Ask for confirmation, and let the row's machine take partitions again."""
        if name := self._machine():
            lines = [f"Let {name} serve again?"]
            self.push_screen(_Words(lines, ask=True), lambda yes: self._acts("resume", name, yes))

    def _machine(self) -> str:
        if TABS[self.tab].name != "Machines":
            self.notify("Machines are drained and resumed: key 3 shows them.")
            return ""
        return self._selected()

    def _acts(self, action: str, name: str, yes: bool | None) -> None:
        if yes:
            self._act(action, name)

    @work(thread=True, group="act")
    def _act(self, action: str, name: str) -> None:
        try:
            (self._feed.drain if action == "drain" else self._feed.resume)(name)
        except PodwrightError as error:
            self._while_open(self.notify, str(error), severity="error")
        else:
            self._while_open(self.notify, f"{name}: {action} is done.")
            self._while_open(self._refresh)
