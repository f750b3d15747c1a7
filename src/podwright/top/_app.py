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
from podwright.top._pod_picture import Cell, draw, kept_marks, legend, letters
from podwright.top._rows import TABS, facts, partitions_on_machine, queue_name, rows

#: A refresh that took t seconds is followed by a pause of at least this many times t.
_PAUSE_PER_CALL_SECOND = 10.0


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

    def __init__(self, lines: list[str], asks_question: bool = False) -> None:
        super().__init__()
        self._lines, self._ask = lines, asks_question

    def compose(self) -> ComposeResult:
        hint = "y: yes   n: no" if self._ask else "Esc: back"
        text = Text("\n".join([*self._lines, "", hint]))
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
        refresh_interval: float = 1.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        self._feed, self._title, self._interval, self._now = feed, title, refresh_interval, clock
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
            yield Tabs(
                *(Tab(f"{index + 1} {tab.name}", id=f"t{index}") for index, tab in enumerate(TABS))
            )
            yield Input(placeholder="words that rows must have; -word: must not", id="filter")
            yield DataTable(cursor_type="row", zebra_stripes=True)
        yield Footer()

    def on_mount(self) -> None:
        """Start refreshing."""
        self.query_one("#title", Static).update(self._title)
        self.query_one("#pod").can_focus = False
        self.query_one(Tabs).can_focus = False
        self.query_one(DataTable).focus()
        self._fetch_snapshot()

    @work(thread=True, exclusive=True, group="look")
    def _fetch_snapshot(self) -> None:
        started_at = time.monotonic()
        try:
            new_snapshot, problem = self._feed.snapshot(), ""
        except PodwrightError as error:
            new_snapshot, problem = {}, error.problem
        duration = time.monotonic() - started_at
        self._while_open(
            self._show,
            new_snapshot,
            problem,
            max(self._interval, _PAUSE_PER_CALL_SECOND * duration),
        )

    def _while_open(self, show: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Call `show` in the app's thread, unless the user has quit since the call began.

        An answer may arrive while Textual closes the app. The widgets are removed before the
        workers are cancelled, so a worker that drew its answer at that moment would fail.
        """

        def show_if_open() -> None:
            if self.is_running:
                show(*args, **kwargs)

        self.call_from_thread(show_if_open)

    def _show(self, new_snapshot: Snapshot, error_text: str, pause_s: float) -> None:
        if error_text != self._problem:
            self._problem = error_text
            title_text = f"{self._title}   {error_text}" if error_text else self._title
            self.query_one("#title", Static).update(
                Text(title_text, style="bold red" if error_text else "")
            )
        if not error_text and new_snapshot != self.snapshot:
            self.snapshot = new_snapshot
        self.refresh_rows()
        if self._next:
            self._next.stop()  # a refresh that the user requested in between
        self._next = self.set_timer(pause_s, self._fetch_snapshot)

    def on_resize(self) -> None:
        """Draw anew, since the width determines how the pod is folded."""
        self.refresh_rows()

    def refresh_rows(self) -> None:
        """Draw the snapshot. Unchanged parts are not sent again, since connections may be slow."""
        self._fill_table()
        width = max(self.size.width - 16, 16)
        if (width, self.snapshot) == self._drawn:
            return
        self._drawn = (width, self.snapshot)
        picture = Text()
        for domain in draw(self.snapshot, width):
            picture.append(f"{domain.name:>6} ", "dim")
            for cell in domain.cells:
                picture.append(cell.letter, cell.style)
            picture.append(f" {domain.free}/{domain.size}\n", "dim")
        picture.rstrip()
        self.query_one("#devices", Static).update(picture)
        self.query_one("#legend", Static).update(legend(self.snapshot))

    def _fill_table(self) -> None:
        table: DataTable[Any] = self.query_one(DataTable)
        tab, (sort_column, descending) = TABS[self.tab], self.order[self.tab]
        table_rows = rows(
            tab, self.snapshot, self._now(), words=self._filter, sort=sort_column, down=descending
        )
        row_marks = self._picture_marks(tab.name, [key for key, _ in table_rows])
        table_state = (self.tab, sort_column, descending, table_rows, row_marks)
        if table_state == self._listed:
            return
        same_tab = bool(self._listed) and self._listed[0] == self.tab
        self._listed = table_state
        key, scroll_offset = self._selected_row_key() if same_tab else "", table.scroll_y
        table.clear(columns=True)
        cell_texts = [[Text(str(value)) for value in values] for _, values in table_rows]
        for index, (heading, _) in enumerate(tab.columns):
            sort_arrow = ("▼" if descending else "▲") if index == sort_column else ""
            # The width is given, because Textual would measure it later and draw twice.
            cell_widths = (cells[index].cell_len for cells in cell_texts)
            column_width = max((len(heading) + 1, *cell_widths)) if heading else 1
            table.add_column(f"{heading}{sort_arrow}", key=str(index), width=column_width)
        for (row_key, _), cells in zip(table_rows, cell_texts, strict=True):
            if row_key in row_marks:
                cells[0] = Text(row_marks[row_key].letter, row_marks[row_key].style)
            table.add_row(*cells, key=row_key)
        row_keys = [row_key for row_key, _ in table_rows]
        if key in row_keys:
            table.move_cursor(row=row_keys.index(key), animate=False, scroll=False)
            table.scroll_y = scroll_offset

    def _picture_marks(self, tab_name: str, row_keys: list[str]) -> dict[str, Cell]:
        """Return how the rows of a table are drawn in the picture, by their keys."""
        if tab_name == "Queue":
            request_marks = kept_marks(self.snapshot)
            names_by_key = {
                row_key: queue_name(row_key, self._item_of_row(row_key)) for row_key in row_keys
            }
            return {
                row_key: request_marks[request_name]
                for row_key, request_name in names_by_key.items()
                if request_name in request_marks
            }
        return letters(self.snapshot) if tab_name == "Partitions" else {}

    def _selected_row_key(self) -> str:
        table: DataTable[Any] = self.query_one(DataTable)
        if not table.row_count:
            return ""
        return str(table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value or "")

    def _item_of_row(self, row_key: str) -> Mapping[str, Any]:
        for topic in TABS[self.tab].topics:
            item = self.snapshot.get(topic, {}).get(row_key)
            if isinstance(item, Mapping):
                return item
        return {}

    def action_tab(self, tab_index: int) -> None:
        """Show another table."""
        self.query_one(Tabs).active = f"t{tab_index}"
        self._open_tab(tab_index)

    def on_tabs_tab_activated(self, event: Tabs.TabActivated) -> None:
        """Show the table that a key or the mouse chose."""
        self._open_tab(int(str(event.tab.id)[1:]))

    def _open_tab(self, tab_index: int) -> None:
        if tab_index != self.tab:
            self.tab = tab_index
            self._fill_table()

    def action_sort(self) -> None:
        """Sort by the next column."""
        column, _ = self.order[self.tab]
        self.order[self.tab] = ((column + 1) % len(TABS[self.tab].columns), False)
        self._fill_table()

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        """Sort by the column that was clicked, and on a second click in the other direction."""
        clicked_column = int(str(event.column_key.value))
        sort_column, descending = self.order[self.tab]
        self.order[self.tab] = (
            clicked_column,
            not descending if clicked_column == sort_column else False,
        )
        self._fill_table()

    def action_filter(self) -> None:
        """Open the field for filter words."""
        filter_input = self.query_one("#filter", Input)
        filter_input.display = True
        filter_input.focus()

    def action_unfilter(self) -> None:
        """Show all rows again."""
        filter_input = self.query_one("#filter", Input)
        filter_input.value, filter_input.display = "", False
        self.query_one(DataTable).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter the rows after each letter."""
        self._filter = event.value
        self._fill_table()

    def on_input_submitted(self) -> None:
        """Go back to the rows. The filter stays."""
        self.query_one(DataTable).focus()

    def on_data_table_row_selected(self) -> None:
        """Explain the row, after Enter or a second click."""
        self.action_explain()

    def action_explain(self) -> None:
        """Explain the state of the row's partition or waiter; for other rows, show all facts."""
        key = self._selected_row_key()
        if key:
            self._explain_row(key, facts(key, self._item_of_row(key)))

    @work(thread=True, group="act")
    def _explain_row(self, row_key: str, fact_lines: list[str]) -> None:
        explanation_lines: list[str] = []
        if TABS[self.tab].name in ("Partitions", "Queue") and "/" not in row_key:
            try:
                explanation_lines = ["", *self._feed.explain(row_key)]
            except PodwrightError as error:
                explanation_lines = ["", error.problem]
        self._while_open(self.push_screen, _Words([*fact_lines, *explanation_lines]))

    def action_drain(self) -> None:
        """Ask for confirmation, and let the row's machine take nothing new."""
        if name := self._selected_machine():
            partitions = partitions_on_machine(self.snapshot, name)
            text = (
                f"On it: {', '.join(partitions)}: they go on."
                if partitions
                else "Nothing lies on it."
            )
            lines = [f"Drain {name}? It takes nothing new.", text]
            self.push_screen(
                _Words(lines, asks_question=True),
                lambda confirmed: self._drain_or_resume_if("drain", name, confirmed),
            )

    def action_resume(self) -> None:
        """Ask for confirmation, and let the row's machine take partitions again."""
        if name := self._selected_machine():
            lines = [f"Let {name} serve again?"]
            self.push_screen(
                _Words(lines, asks_question=True),
                lambda confirmed: self._drain_or_resume_if("resume", name, confirmed),
            )

    def _selected_machine(self) -> str:
        if TABS[self.tab].name != "Machines":
            self.notify("Machines are drained and resumed: key 3 shows them.")
            return ""
        return self._selected_row_key()

    def _drain_or_resume_if(self, action: str, machine_name: str, confirmed: bool | None) -> None:
        if confirmed:
            self._drain_or_resume(action, machine_name)

    @work(thread=True, group="act")
    def _drain_or_resume(self, action: str, machine_name: str) -> None:
        try:
            (self._feed.drain if action == "drain" else self._feed.resume)(machine_name)
        except PodwrightError as error:
            self._while_open(self.notify, str(error), severity="error")
        else:
            self._while_open(self.notify, f"{machine_name}: {action} is done.")
            self._while_open(self._fetch_snapshot)
