"""The arguments for mpirun in the text of an option, as a shell would split them."""

from __future__ import annotations

import shlex

from podwright.errors import InvalidRequest


def split_mpi_arguments(option_name: str, argument_texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the single arguments of all texts that an option was given.

    Raises InvalidRequest for a text with an open quote.
    """
    arguments: list[str] = []
    for text in argument_texts:
        try:
            arguments += shlex.split(_quote_json(text))
        except ValueError as error:
            raise InvalidRequest(f"{option_name}={text!r}: {str(error).lower()}") from None
    return tuple(arguments)


def _quote_json(arguments_text: str) -> str:
    """Put quotes around JSON that follows an equals sign without them, as in `-x NAME={"a": "b"}`.

    The PopRun guide has such lines, but the shell removes their quotes.
    """
    json_start = arguments_text.find("={")
    if json_start < 0:
        return arguments_text
    import json

    decoder = json.JSONDecoder()
    quoted_text = ""
    while json_start >= 0:
        json_start += 1
        try:
            # ValueError here means that the text so far has an open quote: the user quoted it.
            shlex.split(quoted_text + arguments_text[:json_start])
            _, json_end = decoder.raw_decode(arguments_text, json_start)
        except ValueError:
            json_end = json_start + 1
            quoted_text += arguments_text[:json_end]
        else:
            quoted_text += arguments_text[:json_start] + shlex.quote(
                arguments_text[json_start:json_end]
            )
        arguments_text = arguments_text[json_end:]
        json_start = arguments_text.find("={")
    return quoted_text + arguments_text
