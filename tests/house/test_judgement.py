"""No tool says yes or no on nobody's authority."""

import pytest

from podwright.ground.judgement import Judgement, Says


@pytest.mark.parametrize("says", [Says.YES, Says.NO])
def test_yes_and_no_need_a_source(says: Says) -> None:
    with pytest.raises(ValueError, match="nobody says"):
        Judgement(says=says, because="all links are up")


def test_not_known_needs_no_source_and_keeps_what_was_left_out() -> None:
    judgement = Judgement(says=Says.NOT_KNOWN, because="the log ends early", left_out=("node2",))
    assert judgement.as_json() == {
        "says": "not known",
        "because": "the log ends early",
        "source": "",
        "left_out": ["node2"],
    }
