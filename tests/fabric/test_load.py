"""Cluster files: what a good one gives, and what every sort of broken one says."""

# ruff: noqa: E501 (a broken file a line reads best)

from __future__ import annotations

from pathlib import Path

import pytest

from podwright.fabric import (
    IPU,
    ClusterTopology,
    DomainTopology,
    FabricError,
    Machine,
    load_cluster,
)

GOOD = """\
# Two racks.
name = "c128"
family = "ipu"
topology = "looped"
domain_topology = "torus"

[[link_domains]]
name = "rack1"
machines = [
  "ag.14.14",   # reached under its name
  { name = "ag.14.15", host = "10.1.14.15", port = 8081 },
]

[[link_domains]]
machines = ["ag.15.14", "ag.15.15"]
"""


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "cluster.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_good_file(tmp_path: Path) -> None:
    cluster = load_cluster(write(tmp_path, GOOD))
    assert cluster.name == "c128"
    assert cluster.family is IPU
    assert cluster.topology is ClusterTopology.LOOPED
    assert cluster.domain_topology is DomainTopology.TORUS
    assert not cluster.simulated
    assert [domain.name for domain in cluster.domains] == ["rack1", "ild1"]
    assert cluster.domains[0].machines == (
        Machine("ag.14.14", "ag.14.14", 8080),
        Machine("ag.14.15", "10.1.14.15", 8081),
    )
    assert cluster.size == 16


def test_windows_line_ends_and_defaults(tmp_path: Path) -> None:
    text = 'name="a"\r\nfamily="ipu"\r\nsimulated=true\r\n[[link_domains]]\r\nmachines=["m"]\r\n'
    cluster = load_cluster(write(tmp_path, text))
    assert cluster.simulated
    assert cluster.topology is ClusterTopology.NONE
    assert cluster.domains[0].machines[0].host == "127.0.0.1"


def swap(old: str, new: str) -> str:
    assert GOOD.count(old) == 1, old
    return GOOD.replace(old, new)


@pytest.mark.parametrize(
    ("text", "line", "key", "problem", "would_work"),
    [
        ("", 1, "name", "is missing", 'name = "row1"'),
        (swap('family = "ipu"\n', ""), 1, "family", "is missing", 'family = "ipu"'),
        ('name = "a"\nfamily = "ipu"\n', 1, "link_domains", "is missing", "[[link_domains]]"),
        (swap('name = "c128"', "name = c128"), 2, "", "is not TOML", "key = value"),
        (GOOD + "machines", 16, "", "is not TOML", "key = value"),
        (GOOD + "[[link_domains\n", 16, "", "is not TOML", "key = value"),
        (swap('name = "c128"', "name = 128"), 2, "name", "is 128, and not a name", 'name = "row1"'),
        (swap('"c128"', '"c 128"'), 2, "name", "is 'c 128', and not a name of letters, digits", "name ="),
        (swap('"c128"', '""'), 2, "name", "is '', and not a name of letters, digits", "name ="),
        (swap('"c128"', '"c128\\n"'), 2, "name", "is 'c128\\n', and not a name", "name ="),
        (swap('"ipu"', '"ipuu"'), 3, "family", "'ipuu' is not known", "Did you mean ipu?"),
        (swap('"ipu"', '["ipu"]'), 3, "family", "is ['ipu'], and not a name", 'family = "ipu"'),
        (swap('"looped"', '"loop"'), 4, "topology", "'loop' is not known", "Did you mean looped?"),
        (swap('"looped"', '"xyz"'), 4, "topology", "not known", "There are: none, looped, switched"),
        (swap('"looped"', "[]"), 4, "topology", "[] is not known", "There are"),
        (swap('"torus"', '"Torus"'), 5, "domain_topology", "not known", "Did you mean torus?"),
        (swap("domain_topology", "domain_topologie"), 5, "domain_topologie", "is not a known key", "Did you mean domain_topology?"),
        (swap('domain_topology = "torus"', "simulated = 1"), 5, "simulated", "is 1, and not true or false", ""),
        (swap('name = "rack1"', 'nam = "rack1"'), 8, "link_domains[0].nam", "is not a known key", "Did you mean name?"),
        (swap('name = "rack1"', 'name = "ild1"'), 14, "link_domains[1].name", "ild1 is named twice, first on line 8", "once"),
        (swap('["ag.15.14", "ag.15.15"]', "[]"), 15, "link_domains[1].machines", "is [], and not a list of machines", '["ag1", "ag2"]'),
        (swap('["ag.15.14", "ag.15.15"]', '"ag"'), 15, "link_domains[1].machines", "is 'ag', and not a list of machines", "ag1"),
        (swap('machines = ["ag.15.14", "ag.15.15"]', ""), 14, "link_domains[1].machines", "is missing", "ag1"),
        (swap('"ag.15.15"', '"ag.14.14"'), 15, "link_domains[1].machines[1]", "ag.14.14 is named twice, first on line 10", "once"),
        (swap('"ag.15.15"', "7"), 15, "link_domains[1].machines[1]", "is 7, and not a name of letters, digits and . _ - or a table", '["ag1", "ag2"]'),
        (swap('"ag.15.15"', '{ host = "h" }'), 15, "link_domains[1].machines[1].name", "is missing", "name ="),
        (swap('"ag.15.15"', '{ name = "h", hots = "x" }'), 15, "link_domains[1].machines[1].hots", "is not a known key", "Did you mean host?"),
        (swap("port = 8081", "port = 0"), 11, "link_domains[0].machines[1].port", "is 0, and not a port: a number from 1 to 65535", ""),
        (swap("port = 8081", "port = true"), 11, "link_domains[0].machines[1].port", "is True, and not a port", ""),
        (swap("port = 8081", 'port = "8081"'), 11, "link_domains[0].machines[1].port", "is '8081', and not a port", ""),
        (swap('"10.1.14.15"', '"a b"'), 11, "link_domains[0].machines[1].host", "is 'a b', and not a host", ""),
        (swap('"10.1.14.15", port = 8081', '"ag.14.14"'), 11, "link_domains[0].machines[1]", "ag.14.14:8080 is named twice", "once"),
        (swap('["ag.15.14", "ag.15.15"]', str([f"m{i}" for i in range(17)])), 15, "link_domains[1].machines", "has 17 machines", "at most 16"),
        ('name = "a"\nfamily = "ipu"\nlink_domains = []\n', 3, "link_domains", "is [], and not a list of link domains", "[[link_domains]]"),
        ('name = "a"\nfamily = "ipu"\nlink_domains = 3\n', 3, "link_domains", "is 3, and not a list of link domains", "[[link_domains]]"),
        ('name = "a"\nfamily = "ipu"\nlink_domains = [\n {machines = ["a"]},\n 3]\n', 5, "link_domains[1]", "is 3, and not a table", "[[link_domains]]"),
    ],
)  # fmt: skip
def test_a_broken_file_says_where_what_and_what_would_work(
    tmp_path: Path, text: str, line: int, key: str, problem: str, would_work: str
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(FabricError) as caught:
        load_cluster(path)
    error = caught.value
    assert (error.path, error.line, error.key) == (str(path), line, key)
    assert problem in error.problem
    assert would_work in error.would_work
    assert str(error).startswith(f"{path}:{line}: {key}".rstrip(": "))
    assert "\n" not in str(error)


def test_files_that_are_no_text(tmp_path: Path) -> None:
    with pytest.raises(FabricError, match="cannot be read: No such file or directory"):
        load_cluster(tmp_path / "none.toml")
    with pytest.raises(FabricError, match="cannot be read: Is a directory"):
        load_cluster(tmp_path)
    path = write(tmp_path, b'name = "a"\nfamily = "\xff"\n')
    with pytest.raises(FabricError, match="is not UTF-8 text") as caught:
        load_cluster(path)
    assert caught.value.line == 2
