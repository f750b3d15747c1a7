"""Options from a TOML file: the words that they become, and what is not an option."""

from __future__ import annotations

from pathlib import Path

import pytest

from podwright.cli import vipu_server
from podwright.cli.serve._options_file import words
from podwright.errors import InvalidRequest


def test_settings_of_a_file_are_the_options_of_the_command(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text(
        'api-host = "10.0.0.1"\napi-port = 8091\nlisten-anywhere = true\nsecure = false\n'
        'cluster-file = ["a.toml", "b.toml"]\nagent-silence = 2.5\n'
    )
    parser = vipu_server.build_parser()
    found = parser.parse_args([*words(parser, str(file)), "--api-port", "8092"])
    assert (found.api_host, found.api_port, found.listen_anywhere) == ("10.0.0.1", 8092, True)
    assert (found.cluster_file, found.agent_silence) == ([Path("a.toml"), Path("b.toml")], 2.5)
    assert not found.secure


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("api-prt = 1", "no setting 'api-prt'; did you mean 'api-port'?"),
        ("secure = 1", "secure is either true or false"),
        ("api-port = true", "api-port is a text or a number"),
        ("[api-port]", "api-port is a text or a number"),
        ("api-port", "Expected"),
        ('config-file = "x"', "no setting 'config-file'"),
    ],
)
def test_what_is_no_setting_is_refused_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "server.toml"
    file.write_text(text)
    with pytest.raises(InvalidRequest) as caught:
        words(vipu_server.build_parser(), str(file))
    assert says in str(caught.value)
    assert str(file) in str(caught.value)


def test_a_missing_file_of_settings_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="no such file"):
        words(vipu_server.build_parser(), "/nowhere/server.toml")
