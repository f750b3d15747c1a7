"""The grammar of `vipu` and `vipu-admin` as a table: verbs, nouns, and the options of each."""

# Annotations are not postponed: NamedTuple would compile each from its text, at every start.
import importlib
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from podwright._version import __version__
from podwright.cli.shared._arguments import Parser
from podwright.cli.shared._server_options import Connect, JsonEverywhere, parent_parser
from podwright.ground import option_rows as opt

FORMATS = ("table", "wide", "json", "yaml", "name")
OUTPUT = opt.choice(
    f"{', '.join(FORMATS)}; wide: every column, however narrow the terminal",
    FORMATS,
    "",
    "FORMAT",
    name="-o --output",
)
_SORT_BY = opt.text("the column to sort by, as it is headed", "COLUMN")
_WATCH = opt.flag("go on, and print what changes; Ctrl-C ends it", name="-w --watch")


class GroupedListOptions(JsonEverywhere):
    """The options of a list whose rows belong together."""

    output = OUTPUT
    watch = _WATCH


class ListOptions(JsonEverywhere):
    """The options of a list that can be sorted."""

    output = OUTPUT
    sort_by = _SORT_BY
    watch = _WATCH


class LocalListOptions(opt.OptionTable):
    """The options of a list that no server has."""

    json = opt.JSON
    output = OUTPUT
    sort_by = _SORT_BY


class NamedOptions(JsonEverywhere):
    """The options of a verb for something by its name."""

    name = opt.argument("", "NAME")


class Noun(NamedTuple):
    """A noun below a verb; with an s it means the same."""

    name: str
    summary: str
    options: type[JsonEverywhere] = NamedOptions

    @property
    def aliases(self) -> Sequence[str]:
        """Other words for it."""
        return (f"{self.name}s",)


def list_noun(name: str, options: type[JsonEverywhere] = ListOptions, summary: str = "") -> Noun:
    """Return the noun of a list."""
    return Noun(name, summary or f"List {name}s.", options)


class NounVerb(NamedTuple):
    """A verb with its nouns. aliases: other words for it."""

    name: str
    summary: str
    nouns: Sequence[Noun]
    aliases: Sequence[str] = ()


class PlainVerb(NamedTuple):
    """A verb without nouns. help: its line in the list of verbs, if it is not the summary."""

    name: str
    summary: str
    options: type[JsonEverywhere]
    help: str = ""
    aliases: Sequence[str] = ()


_Word = TypeVar("_Word", bound=Noun | NounVerb | PlainVerb)


def noun_parser(
    prog: str,
    description: str,
    epilog: str,
    verbs: Sequence[NounVerb | PlainVerb],
    words: Sequence[str] = (),
) -> Parser:
    """Return the parser of a command that has these verbs.

    `action` in its result is the verb and the noun, such as `list partition`. If `words` begin with
    a verb, it has that one alone, and that noun alone: it is built faster, and reads the words in
    the same way.
    """
    common = parent_parser(JsonEverywhere)
    parser = Parser(prog, description, epilog, parents=[common])
    parser.add_argument("--version", action="version", version=f"{prog} (Podwright) {__version__}")
    parser.add_argument(
        "--server-version", action="store_true", help="print the server's version and address"
    )
    places = parser.add_subparsers(metavar="VERB", dest="verb")
    for verb in _matching(verbs, words[:1]):
        if isinstance(verb, PlainVerb):
            child = places.add_parser(
                verb.name,
                help=verb.help or verb.summary,
                description=verb.summary,
                parents=[common],
            )
            child.set_defaults(action=verb.name)
            verb.options.add_to(child, without=NamedOptions)
            continue
        word = places.add_parser(
            verb.name, help=verb.summary, description=verb.summary, aliases=verb.aliases
        )
        nouns = word.add_subparsers(metavar="NOUN", dest="noun", required=True)
        for noun in _matching(verb.nouns, words[1:2]):
            child = nouns.add_parser(
                noun.name,
                aliases=noun.aliases,
                help=noun.summary,
                description=noun.summary,
                parents=[common],
            )
            child.set_defaults(action=f"{verb.name} {noun.name}")
            if issubclass(noun.options, NamedOptions):
                child.add_argument("name", metavar="NAME", help=f"the {noun.name}'s name")
            noun.options.add_to(child, without=NamedOptions)
    return parser


def _matching(candidates: Sequence[_Word], word: Sequence[str]) -> Sequence[_Word]:
    """Return the candidate that the word stands for; all, if none does."""
    return [each for each in candidates if {each.name, *each.aliases} & set(word)] or candidates


def run_noun(parser: Parser, argv: Sequence[str], connect: Connect, verbs: str, module: str) -> int:
    """Carry out what the words say. Returns the exit code; raises PodwrightError.

    verbs: those that a message names where none is given. module: its ACTIONS has the functions. It
    is loaded after the words are known to be right.
    """
    parsed = parser.parse_args(argv)
    if parsed.server_version:
        arguments = JsonEverywhere(parsed)
        server = connect(arguments)
        with server.client:
            print(f"version: {server.info.version}\nhost: {server.address}")
        return 0
    if parsed.verb is None:
        parser.error(f"missing VERB: {verbs}; see --help")
    code: int = importlib.import_module(module).ACTIONS[parsed.action](parsed, connect)
    return code
