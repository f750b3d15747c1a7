"""Lists of hosts as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwright.errors import InvalidRequest
from podwright.hosts import BadHostList, expand, expand_names, fold, fold_names, read_hosts


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("host0", "host0"),
        ("pod[1-4]", "pod1 pod2 pod3 pod4"),
        ("host[0-2,4]", "host0 host1 host2 host4"),
        ("10.1.2.[3-6]", "10.1.2.3 10.1.2.4 10.1.2.5 10.1.2.6"),
        ("10.1.2.[3-4], 10.1.3.3", "10.1.2.3 10.1.2.4 10.1.3.3"),
        ("b, a , c", "b a c"),
        ("n[08-11]", "n08 n09 n10 n11"),
        ("n[1-2]-ib[0-1].x", "n1-ib0.x n1-ib1.x n2-ib0.x n2-ib1.x"),
        ("n[0-8/4]", "n0 n4 n8"),
    ],
)
def test_lists_are_expanded_in_their_order(text: str, wanted: str) -> None:
    assert expand(text) == tuple(wanted.split())


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", "names no host"),
        (" , ", "names no host"),
        ("a,b,a", "a is named twice"),
        ("-oProxyCommand=x", "not the name of a host"),
        ("a;reboot", "not the name of a host"),
        ("a b", "not the name of a host"),
        ("me@a", "name the user in ~/.ssh/config"),
        ("@group", "not the name of a host"),
        ("a[1-2", "not the name of a host"),
        ("a[2-1]", "runs backwards"),
        ("a[x]", "is neither a number"),
        ("a[]", "is neither a number"),
        ("a[0-999999999]", "more than 65536 hosts"),
        ("a[0-999][0-999]", "more than 65536 hosts"),
        ("a[0-1/0]", "'a[0-1/0]'"),
    ],
)
def test_what_is_no_list_is_refused(text: str, wanted: str) -> None:
    with pytest.raises(BadHostList) as caught:
        expand(text)
    assert wanted in str(caught.value)


def test_a_file_of_hosts() -> None:
    text = "# our pod\nn[1-2]\n\nn7 slots=4  # the third\n10.0.0.1\n"
    assert read_hosts(text, "f") == ("n1", "n2", "n7", "10.0.0.1")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("", "f names no host"), ("a\nb;c\n", "f, line 2: 'b;c'"), ("a\na\n", "a is named twice")],
)
def test_a_bad_file_is_refused_by_its_line(text: str, wanted: str) -> None:
    with pytest.raises(BadHostList) as caught:
        read_hosts(text, "f")
    assert wanted in str(caught.value)


@given(st.sets(st.integers(0, 500), min_size=1, max_size=40))
def test_what_is_folded_expands_again(numbers: set[int]) -> None:
    hosts = [f"n{number}" for number in sorted(numbers)]
    assert expand(fold(hosts)) == tuple(hosts)


@given(st.text(max_size=30))
def test_no_text_does_anything_but_expand_or_be_refused(text: str) -> None:
    try:
        found = expand(text)
    except BadHostList:
        return
    assert all(host.replace(".", "").replace("-", "").replace("_", "").isalnum() for host in found)
    assert not any(host.startswith("-") for host in found)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", ""),
        ("n[1-3,7],m2,n2", "n1 n2 n3 n7 m2"),
        (
            "/dev/nvidia[0-1],/dev/dri/card[8-9].x",
            "/dev/nvidia0 /dev/nvidia1 /dev/dri/card8.x /dev/dri/card9.x",
        ),
        ("a&b[1-2],@c[3-4]!", "a&b1 a&b2 @c3! @c4!"),
        ("r[1-2]n[08-09]", "r1n08 r1n09 r2n08 r2n09"),
    ],
)
def test_slurm_lists_any_names_each_once(text: str, wanted: str) -> None:
    assert expand_names(text) == tuple(wanted.split())


@pytest.mark.parametrize("text", ["n[0-8/4]", "n[a-b]", "n[3-1]", "n[0-999999999]", "n[]"])
def test_what_slurm_does_not_list_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        expand_names(text)


@given(
    st.sets(
        st.from_regex(r"[a-z]{1,2}[0-9]{0,2}(-[a-z][0-9]{1,2})?", fullmatch=True),
        min_size=1,
        max_size=30,
    )
)
def test_what_is_folded_for_slurm_has_one_bracket_in_a_name_and_expands_again(
    names: set[str],
) -> None:
    folded = fold_names(names)
    assert set(expand_names(folded)) == names
    assert not any(part.count("[") > 1 for part in folded.split(","))
