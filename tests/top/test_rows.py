"""What `top` draws and lists, without a screen."""

from __future__ import annotations

from podwright.top import TABS, draw, legend, rows
from podwright.top._pod_picture import Cell, kept_marks
from podwright.top._rows import partitions_on_machine, queue_name, span
from tests.top.pod import NOW, snapshot


def drawn(width: int = 64, **shape: int) -> list[str]:
    found = draw(snapshot(**shape), width)
    return [f"{d.name} {''.join(c.letter for c in d.cells)} {d.free}/{d.size}" for d in found]


def test_each_partition_has_a_letter_and_devices_that_are_down_an_exclamation_mark() -> None:
    assert drawn() == ["0 AAAABBBB········ 8/16", "1 ············!!!! 12/16"]
    assert legend(snapshot()) == "· free  d drained  ! down  r kept  20 free, largest 8"


def test_a_domain_that_is_wider_than_the_screen_is_folded_and_shows_its_failure() -> None:
    first, second = drawn(width=4)
    assert first == "0 AB·· 8/16"
    assert second == "1 ···! 12/16"
    large = snapshot(domains=1, size=64)
    large["devices"]["c0/0/63"] = ("m15", 3, "DOWN", "", "a0")
    (domain,) = draw(large, 8)
    assert domain.cells[-1] == Cell("!", "red bold")


def test_a_partition_keeps_its_letter_while_others_come_and_go() -> None:
    seen = snapshot()
    before = {name: values[0] for name, values in rows(TABS[0], seen, NOW)}
    seen["partitions"]["later"] = {**seen["partitions"]["eval"], "created": 30}
    assert set(before) < {name for name, _ in rows(TABS[0], seen, NOW)}
    assert "".join(c.letter for c in draw(seen, 64)[0].cells).startswith("AAAABBBB")


def test_rows_are_filtered_and_sorted() -> None:
    partitions = TABS[0]
    by_owner = rows(partitions, snapshot(), NOW, sort=4)
    assert [key for key, _ in by_owner] == ["train", "eval"]
    assert [key for key, _ in rows(partitions, snapshot(), NOW, sort=4, down=True)] == [
        *("eval", "train")
    ]
    assert [key for key, _ in rows(partitions, snapshot(), NOW, words="alice active")] == ["train"]
    assert [key for key, _ in rows(partitions, snapshot(), NOW, words="-alice")] == ["eval"]
    (waiter,) = rows(TABS[1], snapshot(), NOW)
    assert waiter[1] == (
        "", "people", 1, "w1", "carol", "16 devices", "", "1m", "", "eval to end"
    )  # fmt: skip


def test_kept_devices_have_the_number_of_their_request_in_the_legend() -> None:
    seen = snapshot()
    seen["jobs"] = {
        "slurm/7": {"scheduler": "slurm", "job": "7", "place": 2, "owner": "eve", "reserved": 2}
    }
    for offset, more in ((0, ("job 7 of slurm",)), (1, ("job 7 of slurm",)), (2, ("w1",)), (3, ())):
        machine, index, *_ = seen["devices"][f"c0/1/{offset}"]
        seen["devices"][f"c0/1/{offset}"] = (machine, index, "RESERVED", "", "a0", *more)
    _, second = draw(seen, 64)
    assert "".join(cell.letter for cell in second.cells) == "112r········!!!!"
    assert "r kept  1 for job 7 of slurm  2 for w1  " in legend(seen)
    _, job = rows(TABS[1], seen, NOW, sort=TABS[1].sort)
    assert job[1][1:7] == ("slurm", 2, "7", "eve", "", 2)
    named = {
        queue_name(key, seen[topic][key]) for topic, key in (("jobs", "slurm/7"), ("waiters", "w1"))
    }
    assert named == set(kept_marks(seen))


def test_events_are_the_newest_first() -> None:
    tab = TABS[3]
    found = rows(tab, snapshot(), NOW, sort=tab.sort, down=tab.down)
    assert [key for key, _ in found] == ["2", "1", "0"]


def test_the_partitions_on_a_machine_are_listed() -> None:
    assert partitions_on_machine(snapshot(), "m0") == ["train"]
    assert partitions_on_machine(snapshot(), "m7") == []


def test_a_span_of_seconds_is_shown_in_its_largest_unit() -> None:
    assert [span(s) for s in (-1, 59, 60, 3700, 200000)] == ["0s", "59s", "1m", "1h01", "2d"]
