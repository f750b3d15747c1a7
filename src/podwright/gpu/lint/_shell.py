"""A script's commands as the shell runs them: their words with variables replaced, and their
places.

The parser is tree-sitter's grammar, which continues after errors (scripts with placeholders). A
variable that is set once, at the top, is replaced by its value. Anything else that the batch shell
inserts into a word becomes ⟦NAME⟧ (⟦NAME:-⟧ with a default, ⟦⟧ if it has no name). A remaining
$NAME is one that the program, or a shell within it, expands later.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

OPEN, CLOSE = "\u27e6", "\u27e7"
UNKNOWN = OPEN + CLOSE
_MAX_DEPTH = 4
_HOLE = re.compile(OPEN + r"([^" + CLOSE + r"]*)" + CLOSE)
_BC = re.compile(r"\|\s*bc(\s+-l)?\s*\)$")
_SUM = re.compile(r"\s*\d{1,9}\s*([+*]\s*\d{1,9}\s*){0,9}")
_ELSEWHERE = re.compile(r"(\S*/)?(srun|ssh|pdsh|clush|mpirun|mpiexec)")
_BODIES = {
    "for_statement": "loop",
    "c_style_for_statement": "loop",
    "while_statement": "loop",
    "if_statement": "choice",
    "case_statement": "choice",
    "function_definition": "function",
    "command_substitution": "within",
    "process_substitution": "within",
}


class WordPlace(NamedTuple):
    """The place of a command."""

    loop: int = 0  # the line of the innermost loop around it, 0 for none
    choice: bool = False  # in an if, a case or behind && or ||
    function: bool = False
    within: bool = False  # in $(…)
    behind: bool = False  # run in the background
    quoted: bool = False  # in the text that a further shell runs: sh -c "…"


class ShellCommand(NamedTuple):
    """One command: its words with variables replaced, its lines, `set_before` (A=1 command)."""

    words: tuple[str, ...]
    line: int
    last: int
    place: WordPlace = WordPlace()
    set_before: tuple[tuple[str, str], ...] = ()
    reads: str = ""  # the text of its here-document


class Assignment(NamedTuple):
    """NAME=value, with variables replaced; `exported`: whether the script exports it."""

    name: str
    value: str
    line: int
    exported: bool
    place: WordPlace


class Shell:
    """All commands and assignments, in the order of the script.

    `sums` has the names within $((…)), by line; `comments` has the lines that are nothing else.
    """

    def __init__(self) -> None:
        self.commands: list[ShellCommand] = []
        self.assignments: list[Assignment] = []
        self.sums: list[tuple[int, str]] = []
        self.comments: set[int] = set()

    def value(self, name: str) -> str | None:
        """Return the value of a variable that is set once."""
        assignments = [assignment for assignment in self.assignments if assignment.name == name]
        return assignments[0].value if len(assignments) == 1 else None

    def exported(self, name: str) -> bool:
        """Return whether programs see the variable."""
        return any(
            assignment.name == name and assignment.exported for assignment in self.assignments
        )


def holes(text: str) -> list[str]:
    """Return the names that the batch shell expands in this word."""
    return _HOLE.findall(text)


def parse(text: str) -> Shell:
    """Return the script's commands and assignments."""
    reader = _Reader(text.encode("utf-8", "replace"))
    reader.read()
    return reader.shell


def _parser() -> Parser:
    from tree_sitter import Language, Parser

    return Parser(Language(_grammar()))


@cache
def _grammar() -> object:
    """Return the grammar alone.

    The package's own entry point loads ten modules for queries, which takes as long as all that
    lint does with a script.
    """
    from importlib.machinery import PathFinder
    from importlib.util import find_spec, module_from_spec

    package = find_spec("tree_sitter_bash")
    spec = package and PathFinder.find_spec("_binding", package.submodule_search_locations)
    if not spec or not spec.loader:
        import tree_sitter_bash

        return tree_sitter_bash.language()
    binding = module_from_spec(spec)
    spec.loader.exec_module(binding)
    return binding.language()


class _Reader:
    def __init__(
        self,
        source: bytes,
        offset: int = 0,
        place: WordPlace | None = None,
        depth: int = 0,
        *,
        later: bool = False,
    ) -> None:
        self.source, self.offset, self.depth = source, offset, depth
        self.later = later  # a shell within a task: the batch shell does not expand its variables
        self.place = place or WordPlace()
        self.shell = Shell()
        self.values: dict[str, str] = {}
        self.lists: dict[str, list[str]] = {}
        self.often: set[str] = set()

    def read(self) -> None:
        tree = _parser().parse(self.source)
        self._count(tree.root_node)
        self._walk(tree.root_node, self.place)

    def _text(self, node: Node) -> str:
        return self.source[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def _line(self, node: Node) -> int:
        return node.start_point[0] + 1 + self.offset

    def _count(self, root: Node) -> None:
        """Find the names that are set more than once, or not always."""
        seen: set[str] = set()
        stack = [(root, False)]
        while stack:
            node, unsure = stack.pop()
            if node.type == "variable_assignment":
                name = self._text(node.children[0]).partition("[")[0]
                within = node.parent is not None and node.parent.type == "command"
                if not within and (
                    name in seen or unsure or node.children[0].type != "variable_name"
                ):
                    self.often.add(name)
                seen.add(name) if not within else None
            elif node.type == "for_statement":
                self.often |= {self._text(c) for c in node.children if c.type == "variable_name"}
            elif node.type == "command":
                words = [self._text(c) for c in node.children]
                if words[0] in ("read", "unset", "mapfile", "readarray", "printf", "getopts"):
                    self.often |= set(words[1:])
            in_body = unsure or node.type in _BODIES
            stack += [(child, in_body) for child in reversed(node.children)]

    # Statements

    def _walk(self, node: Node, place: WordPlace) -> None:
        kind = node.type
        if kind == "comment":
            self.shell.comments.add(self._line(node))
            return
        if kind == "command":
            self._command(node, place)
        elif kind in ("variable_assignment", "declaration_command"):
            self._assign(node, place)
        elif kind == "redirected_statement":
            self._redirected(node, place)
        if kind in _BODIES:
            role = _BODIES[kind]
            place = place._replace(
                loop=self._line(node) if role == "loop" else place.loop,
                choice=place.choice or role == "choice",
                function=place.function or role == "function",
                within=place.within or role == "within",
            )
        children = node.children
        chained = kind == "list" and any(c.type in ("&&", "||") for c in children)
        for index, child in enumerate(children):
            after = children[index + 1].type if index + 1 < len(children) else ""
            child_place = place._replace(behind=True) if after == "&" else place
            if chained and index > 0 and any(c.type == "||" for c in children):
                child_place = child_place._replace(choice=True)
            if kind == "redirected_statement" and child.type in ("command", "heredoc_redirect"):
                continue  # handled above
            self._walk(child, child_place)

    def _redirected(self, node: Node, place: WordPlace) -> None:
        body = ""
        for child in node.children:
            if child.type == "heredoc_redirect":
                body = "".join(self._text(c) for c in child.children if c.type == "heredoc_body")
        for child in node.children:
            if child.type == "command":
                self._command(child, place, body)
                for inner in child.children:
                    self._walk(inner, place)

    def _assign(self, node: Node, place: WordPlace) -> None:
        pairs = [node] if node.type == "variable_assignment" else node.children
        exported = node.type == "declaration_command" and (
            self._text(node.children[0]) == "export"
            or any(self._text(c).startswith("-") and "x" in self._text(c) for c in node.children)
        )
        for pair in pairs:
            if pair.type == "variable_name" and exported:
                name = self._text(pair)
                for index, assignment in enumerate(self.shell.assignments):
                    if assignment.name == name:
                        self.shell.assignments[index] = assignment._replace(exported=True)
            if pair.type != "variable_assignment" or (
                pair.parent is not None and pair.parent.type == "command"
            ):
                continue
            if (
                node is pair
                and node.parent is not None
                and node.parent.type == "declaration_command"
            ):
                continue
            name = self._text(pair.children[0])
            values = pair.children[2:]
            if values and values[0].type == "array":
                words = [word for c in values[0].children if c.is_named for word in self._words(c)]
                if name not in self.often:
                    self.lists[name] = words
                continue
            value = "".join(self._word(v) for v in values)
            if pair.children[1].type == "+=" if len(pair.children) > 1 else False:
                self.often.add(name)
                self.values.pop(name, None)
                value = UNKNOWN
            if name not in self.often:
                self.values[name] = value
            was_exported = any(
                assignment.name == name and assignment.exported
                for assignment in self.shell.assignments
            )
            self.shell.assignments.append(
                Assignment(name, value, self._line(pair), exported or was_exported, place)
            )

    def _command(self, node: Node, place: WordPlace, body: str = "") -> None:
        before: list[tuple[str, str]] = []
        words: list[str] = []
        for child in node.children:
            if child.type == "variable_assignment":
                name = self._text(child.children[0])
                before.append((name, "".join(self._word(v) for v in child.children[2:])))
            elif child.type == "command_name":
                words += self._words(child.children[0]) if child.children else []
            elif child.is_named and "redirect" not in child.type:
                words += self._words(child)
        last = node.end_point[0] + 1 + self.offset
        command = ShellCommand(tuple(words), self._line(node), last, place, tuple(before), body)
        self.shell.commands.append(command)
        self._inner(command)

    def _inner(self, command: ShellCommand) -> None:
        """Read the commands in the text that `sh -c` or eval runs."""
        text = inner_text(command.words)
        if text is None or self.depth >= _MAX_DEPTH:
            return
        place = command.place._replace(quoted=True)
        front = _front(command.words)
        later = self.later or any(_ELSEWHERE.fullmatch(word) for word in front)
        inner = _Reader(text.encode(), command.line - 1, place, self.depth + 1, later=later)
        inner.read()
        for inner_command in inner.shell.commands:
            words = (*front, *inner_command.words)
            self.shell.commands.append(
                inner_command._replace(
                    words=words, line=command.line, last=command.last, place=place
                )
            )
        self.shell.sums += [(command.line, name) for _, name in inner.shell.sums]

    # Words

    def _words(self, node: Node) -> list[str]:
        """Return a word; several if an unquoted variable or an array stands for several."""
        if node.type in ("simple_expansion", "expansion") or (
            node.type == "string" and "[@]" in self._text(node)
        ):
            name = self._text(node).strip('"').removeprefix("${").removeprefix("$").rstrip("}")
            base = name.removesuffix("[@]").removesuffix("[*]")
            if base != name and base in self.lists:
                return list(self.lists[base])
            if name in self.values and node.type != "string":
                return self.values[name].split() or []
        return [self._word(node)]

    def _word(self, node: Node) -> str:
        kind = node.type
        if kind == "raw_string":
            return self._text(node)[1:-1]
        if kind in ("word", "string_content", "variable_name", "number", "heredoc_body"):
            return _unescape(self._text(node), quoted=kind == "string_content")
        if kind in ("string", "translated_string"):
            return self._pieces(node, quoted=True)
        if kind in ("concatenation", "command_name", "binary_expression"):
            return self._pieces(node, quoted=False)
        if kind in ("simple_expansion", "expansion"):
            return self._expansion(self._text(node))
        if kind == "arithmetic_expansion":
            return self._sum(node)
        if kind in ("command_substitution", "process_substitution"):
            if re.match(r"\$\(\s*expr\b", text := self._text(node)) or _BC.search(text):
                names = re.findall(r"\$\{?([A-Za-z_]\w*)\b(?!:?[-=])", text)
                self.shell.sums += [(self._line(node), name) for name in names]
            return OPEN + re.sub(f"[{OPEN}{CLOSE}]", "", self._text(node)) + CLOSE
        return self._text(node)

    def _pieces(self, node: Node, *, quoted: bool) -> str:
        out: list[str] = []
        offset = node.start_byte
        for child in node.children:
            out.append(self.source[offset : child.start_byte].decode("utf-8", "replace"))
            offset = child.end_byte
            if quoted and child.type in ('"', '$"'):
                continue
            out.append(self._word(child))
        return "".join(out)

    def _expansion(self, text: str) -> str:
        name = text.removeprefix("${").removeprefix("$").removesuffix("}")
        if name in self.values:
            return self.values[name]
        if self.later:
            return f"${{{name}}}"
        if re.fullmatch(r"\w+", name):
            return f"{OPEN}{name}{CLOSE}"
        base = re.match(r"\w+", name)
        if base and re.match(r"\w+:?[-=+?]", name):
            return f"{OPEN}{base[0]}:-{CLOSE}"
        if base and OPEN not in name:
            return f"{OPEN}{name}{CLOSE}"  # cut: ${NAME%%,*}
        return UNKNOWN

    def _sum(self, node: Node) -> str:
        expression = self._text(node).removeprefix("$((").removesuffix("))")
        names = re.findall(r"\$?\{?\b([A-Za-z_]\w*)\b(?!:?[-=])\}?", expression)
        if ":-" not in expression:
            self.shell.sums += [(self._line(node), name) for name in names]

        def put(match: re.Match[str]) -> str:
            return self.values.get(match[1], UNKNOWN)

        filled = re.sub(r"\$?\{?\b([A-Za-z_]\w*)\b\}?", put, expression)
        total = calculate(filled)
        return UNKNOWN if total is None else str(total)


def calculate(text: str) -> int | None:
    """Return the whole number of products and sums of whole numbers; None for anything else."""
    text = text.strip()
    if text.startswith("(") and text.endswith(")") and text.count("(") == 1:
        text = text[1:-1]
    if not _SUM.fullmatch(text):
        return None
    total = 0
    for term in text.split("+"):
        product = 1
        for factor in term.split("*"):
            product *= int(factor)
        total += product
    return total


def _unescape(text: str, *, quoted: bool) -> str:
    text = text.replace("\\\n", "")
    return re.sub(r'\\([$`"\\])' if quoted else r"\\(.)", r"\1", text)


def inner_text(words: tuple[str, ...]) -> str | None:
    """Return the text that this command passes to a shell: of `bash -c TEXT`, or `eval WORDS`."""
    if words and words[0] == "eval":
        return " ".join(words[1:])
    for index, word in enumerate(words[:-2]):
        if re.fullmatch(r"(\S*/)?(ba|da|z|k)?sh", word):
            for more in range(index + 1, len(words) - 1):
                if re.fullmatch(r"-\w*c", words[more]):
                    return words[more + 1]
                if not words[more].startswith("-"):
                    break
    return None


def _front(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words before the shell in `srun … bash -c`: srun runs what the shell runs."""
    for index, word in enumerate(words):
        if re.fullmatch(r"(\S*/)?(ba|da|z|k)?sh", word):
            return words[:index]
    return ()
