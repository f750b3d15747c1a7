"""A script's commands as the shell runs them: their words with variables replaced, and their
places.

The parser is tree-sitter's grammar, which continues after errors (scripts with placeholders). A
variable that is set once, at the top, is replaced by its value. Anything else that the batch shell
inserts into a word becomes ⟦NAME⟧ (⟦NAME:-8⟧ with a default, ⟦$((NAME * 8))⟧, ⟦$(command)⟧, ⟦⟧ if
it has no name). A remaining $NAME is one that the program, or a shell within it, expands later.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from podwright.gpu.lint._amounts import calculate

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

HOLE_OPEN, HOLE_CLOSE = "\u27e6", "\u27e7"
UNKNOWN_VALUE = HOLE_OPEN + HOLE_CLOSE
_MAX_SHELL_DEPTH = 4
_HOLE_PATTERN = re.compile(HOLE_OPEN + r"([^" + HOLE_CLOSE + r"]*)" + HOLE_CLOSE)
_WORD_PATTERN = re.compile(f"(?:{HOLE_OPEN}[^{HOLE_CLOSE}]*{HOLE_CLOSE}|\\S)+")
_BC_PIPE_PATTERN = re.compile(r"\|\s*bc(\s+-l)?\s*\)$")
_SUM_NAME_PATTERN = re.compile(r"\$?\{?\b([A-Za-z_]\w*)\b\}?")
_DEFAULT_PATTERN = re.compile(r"\$\{(\w+):?-[^}]*\}")
_ALWAYS_SET = {"SLURM_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_GPUS_ON_NODE"}
_REMOTE_STARTER_PATTERN = re.compile(r"(\S*/)?(srun|ssh|pdsh|clush|mpirun|mpiexec)")
_BODY_ROLES = {
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
    outside: int = 0  # the words before those of the text that `sh -c` runs
    garbled: bool = False  # the parser could not read all of it


class Assignment(NamedTuple):
    """NAME=value, with variables replaced; `exported`: whether the script exports it."""

    name: str
    value: str
    line: int
    exported: bool
    place: WordPlace


class Shell:
    """All commands and assignments, in the order of the script.

    `sums` has the names within $((…)), by line; `comments` has the lines that are nothing else;
    `names` has every name that is set, in the text for another shell too;
    `unsteady` has the names that are set more than once, or not always; `escaped` has the lines
    with a protected dollar sign that is not within a text for another shell. `files` has the texts
    of here-documents without variables, by the file that they are written into.
    """

    def __init__(self) -> None:
        self.commands: list[ShellCommand] = []
        self.assignments: list[Assignment] = []
        self.sums: list[tuple[int, str]] = []
        self.comments: set[int] = set()
        self.names: set[str] = set()
        self.unsteady: set[str] = set()
        self.escaped: set[int] = set()
        self.files: dict[str, str] = {}

    def value(self, name: str) -> str | None:
        """Return the value of a variable that is set once."""
        assignments = [assignment for assignment in self.assignments if assignment.name == name]
        return assignments[0].value if len(assignments) == 1 else None

    def exported(self, name: str) -> bool:
        """Return whether programs see the variable."""
        return any(
            assignment.name == name and assignment.exported for assignment in self.assignments
        )


def holes(word: str) -> list[str]:
    """Return the names that the batch shell expands in this word."""
    return _HOLE_PATTERN.findall(word)


def parse(script_text: str) -> Shell:
    """Return the script's commands and assignments."""
    reader = _ShellReader(script_text.encode("utf-8", "replace"))
    reader.read()
    return reader.shell


def _bash_parser() -> Parser:
    from tree_sitter import Language, Parser

    return Parser(Language(_bash_grammar()))


@cache
def _bash_grammar() -> object:
    """Return the grammar alone.

    The package's own entry point loads ten modules for queries, which takes as long as all that
    lint does with a script.
    """
    from importlib.machinery import PathFinder
    from importlib.util import find_spec, module_from_spec

    package_spec = find_spec("tree_sitter_bash")
    binding_spec = package_spec and PathFinder.find_spec(
        "_binding", package_spec.submodule_search_locations
    )
    if not binding_spec or not binding_spec.loader:
        import tree_sitter_bash

        return tree_sitter_bash.language()
    binding_module = module_from_spec(binding_spec)
    binding_spec.loader.exec_module(binding_module)
    return binding_module.language()


class _ShellReader:
    def __init__(
        self,
        source: bytes,
        line_offset: int = 0,
        place: WordPlace | None = None,
        depth: int = 0,
        *,
        later: bool = False,
    ) -> None:
        self.source, self.offset, self.depth = source, line_offset, depth
        self.later = later  # a shell within a task: the batch shell does not expand its variables
        self.place = place or WordPlace()
        self.shell = Shell()
        self.values: dict[str, str] = {}
        self.lists: dict[str, list[str]] = {}
        self.often = self.shell.unsteady

    def read(self) -> None:
        tree = _bash_parser().parse(self.source)
        self._find_unsteady_names(tree.root_node)
        self._walk_node(tree.root_node, self.place)

    def _node_text(self, node: Node) -> str:
        return self.source[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def _line_number(self, node: Node) -> int:
        return node.start_point[0] + 1 + self.offset

    def _find_unsteady_names(self, root: Node) -> None:
        """Find the names that are set more than once, or not always."""
        assigned_names: set[str] = set()
        stack = [(root, False)]
        while stack:
            node, is_conditional = stack.pop()
            if node.type == "variable_assignment":
                variable_name = self._node_text(node.children[0]).partition("[")[0]
                is_command_prefix = node.parent is not None and node.parent.type == "command"
                if not is_command_prefix and (
                    variable_name in assigned_names
                    or is_conditional
                    or node.children[0].type != "variable_name"
                ):
                    self.often.add(variable_name)
                assigned_names.add(variable_name) if not is_command_prefix else None
            elif node.type == "for_statement":
                self.often |= {
                    self._node_text(part) for part in node.children if part.type == "variable_name"
                }
            elif node.type == "command":
                command_words = [self._node_text(part) for part in node.children]
                if command_words[0] in (
                    "read",
                    "unset",
                    "mapfile",
                    "readarray",
                    "printf",
                    "getopts",
                ):
                    self.often |= set(command_words[1:])
            in_body = is_conditional or node.type in _BODY_ROLES
            stack += [(child, in_body) for child in reversed(node.children)]

    # Statements

    def _walk_node(self, node: Node, place: WordPlace) -> None:
        node_type = node.type
        if node_type == "comment":
            self.shell.comments.add(self._line_number(node))
            return
        if node_type == "command":
            self._read_command(node, place)
        elif node_type in ("variable_assignment", "declaration_command"):
            self._read_assignment(node, place)
        elif node_type == "redirected_statement":
            self._read_redirected(node, place)
        if node_type in _BODY_ROLES:
            body_role = _BODY_ROLES[node_type]
            place = place._replace(
                loop=self._line_number(node) if body_role == "loop" else place.loop,
                choice=place.choice or body_role == "choice",
                function=place.function or body_role == "function",
                within=place.within or body_role == "within",
            )
        children = node.children
        is_chain = node_type == "list" and any(sibling.type in ("&&", "||") for sibling in children)
        for index, child in enumerate(children):
            next_type = children[index + 1].type if index + 1 < len(children) else ""
            child_place = place._replace(behind=True) if next_type == "&" else place
            if is_chain and index > 0 and any(sibling.type == "||" for sibling in children):
                child_place = child_place._replace(choice=True)
            if node_type == "redirected_statement" and child.type in (
                "command",
                "heredoc_redirect",
            ):
                continue  # handled above
            self._walk_node(child, child_place)

    def _read_redirected(self, node: Node, place: WordPlace) -> None:
        heredoc_text = ""
        redirects = [
            part for child in node.children for part in (child, *child.children)
            if part.type in ("file_redirect", "heredoc_body")
        ]  # fmt: skip
        for part in redirects:
            if part.type == "heredoc_body":
                heredoc_text = self._node_text(part)
        for part in redirects:
            if part.type == "file_redirect" and heredoc_text and "$" not in heredoc_text:
                self.shell.files[self._expand_word(part.children[-1])] = heredoc_text
        for child in node.children:
            if child.type == "command":
                self._read_command(child, place, heredoc_text)
                for inner_node in child.children:
                    self._walk_node(inner_node, place)

    def _read_assignment(self, node: Node, place: WordPlace) -> None:
        assignment_nodes = [node] if node.type == "variable_assignment" else node.children
        is_exported = node.type == "declaration_command" and (
            self._node_text(node.children[0]) == "export"
            or any(
                self._node_text(child).startswith("-") and "x" in self._node_text(child)
                for child in node.children
            )
        )
        for assignment_node in assignment_nodes:
            if assignment_node.type == "variable_name" and is_exported:
                variable_name = self._node_text(assignment_node)
                for index, assignment in enumerate(self.shell.assignments):
                    if assignment.name == variable_name:
                        self.shell.assignments[index] = assignment._replace(exported=True)
            if assignment_node.type != "variable_assignment" or (
                assignment_node.parent is not None and assignment_node.parent.type == "command"
            ):
                continue
            if (
                node is assignment_node
                and node.parent is not None
                and node.parent.type == "declaration_command"
            ):
                continue
            variable_name = self._node_text(assignment_node.children[0])
            value_nodes = assignment_node.children[2:]
            if value_nodes and value_nodes[0].type == "array":
                array_words = [
                    word
                    for child in value_nodes[0].children
                    if child.is_named
                    for word in self._expand_words(child)
                ]
                if variable_name not in self.often:
                    self.lists[variable_name] = array_words
                continue
            value = "".join(self._expand_word(value_node) for value_node in value_nodes)
            if (
                assignment_node.children[1].type == "+="
                if len(assignment_node.children) > 1
                else False
            ):
                self.often.add(variable_name)
                self.values.pop(variable_name, None)
                value = UNKNOWN_VALUE
            if variable_name not in self.often:
                self.values[variable_name] = value
            was_exported = any(
                assignment.name == variable_name and assignment.exported
                for assignment in self.shell.assignments
            )
            self.shell.names.add(variable_name)
            self.shell.assignments.append(
                Assignment(
                    variable_name,
                    value,
                    self._line_number(assignment_node),
                    is_exported or was_exported,
                    place,
                )
            )

    def _read_command(self, node: Node, place: WordPlace, heredoc_text: str = "") -> None:
        assignments_before: list[tuple[str, str]] = []
        command_words: list[str] = []
        for child in node.children:
            if child.type == "variable_assignment":
                variable_name = self._node_text(child.children[0])
                assignments_before.append(
                    (
                        variable_name,
                        "".join(self._expand_word(value_node) for value_node in child.children[2:]),
                    )
                )
            elif child.type == "command_name":
                command_words += self._expand_words(child.children[0]) if child.children else []
            elif child.is_named and "redirect" not in child.type:
                command_words += self._expand_words(child)
        self.shell.names.update(dict(assignments_before))
        last_line = node.end_point[0] + 1 + self.offset
        command = ShellCommand(
            tuple(command_words),
            self._line_number(node),
            last_line,
            place,
            tuple(assignments_before),
            heredoc_text,
            garbled=node.has_error,
        )
        self.shell.commands.append(command)
        self._read_inner_script(command)

    def _read_inner_script(self, command: ShellCommand) -> None:
        """Read the commands in the text that `sh -c` or eval runs."""
        inner_script = inner_text(command.words)
        if inner_script is None or self.depth >= _MAX_SHELL_DEPTH:
            return
        place = command.place._replace(quoted=True)
        launcher_words = _words_before_shell(command.words)
        is_remote = self.later or any(
            _REMOTE_STARTER_PATTERN.fullmatch(word) for word in launcher_words
        )
        inner_reader = _ShellReader(
            inner_script.encode(), command.line - 1, place, self.depth + 1, later=is_remote
        )
        exported = {a.name for a in self.shell.assignments if a.exported}
        inner_reader.values |= {
            name: value for name, value in self.values.items() if name in exported or not is_remote
        }
        inner_reader.read()
        for inner_command in inner_reader.shell.commands:
            full_words = (*launcher_words, *inner_command.words)
            self.shell.commands.append(
                inner_command._replace(
                    words=full_words,
                    line=command.line,
                    last=command.last,
                    place=place,
                    outside=inner_command.outside + len(launcher_words),
                )
            )
        self.shell.sums += [(command.line, name) for _, name in inner_reader.shell.sums]
        self.shell.names |= inner_reader.shell.names

    # Words

    def _expand_words(self, node: Node) -> list[str]:
        """Return a word; several if an unquoted variable or an array stands for several."""
        if node.type in ("simple_expansion", "expansion") or (
            node.type == "string" and "[@]" in self._node_text(node)
        ):
            expansion = (
                self._node_text(node).strip('"').removeprefix("${").removeprefix("$").rstrip("}")
            )
            name = expansion.removesuffix("[@]").removesuffix("[*]")
            if name != expansion and name in self.lists:
                return list(self.lists[name])
            if expansion in self.values and node.type != "string":
                return _WORD_PATTERN.findall(self.values[expansion])
        return [self._expand_word(node)]

    def _expand_word(self, node: Node) -> str:
        node_type = node.type
        if node_type == "raw_string":
            return self._node_text(node)[1:-1]
        if node_type == "word" and "\\$" in self._node_text(node):
            self.shell.escaped.add(self._line_number(node))
        if node_type in ("word", "string_content", "variable_name", "number", "heredoc_body"):
            return _unescape(self._node_text(node), quoted=node_type == "string_content")
        if node_type in ("string", "translated_string"):
            return self._expand_pieces(node, quoted=True)
        if node_type in ("concatenation", "command_name", "binary_expression"):
            return self._expand_pieces(node, quoted=False)
        if node_type in ("simple_expansion", "expansion"):
            return self._expand_variable(self._node_text(node))
        if node_type == "arithmetic_expansion":
            return self._evaluate_arithmetic(node)
        if node_type in ("command_substitution", "process_substitution"):
            if re.match(
                r"\$\(\s*expr\b", substitution := self._node_text(node)
            ) or _BC_PIPE_PATTERN.search(substitution):
                variable_names = re.findall(r"\$\{?([A-Za-z_]\w*)\b(?!:?[-=])", substitution)
                self.shell.sums += [(self._line_number(node), name) for name in variable_names]
            if substitution.startswith("`"):
                substitution = f"$({substitution[1:-1]})"
            if self.later:
                return substitution
            return HOLE_OPEN + re.sub(f"[{HOLE_OPEN}{HOLE_CLOSE}]", "", substitution) + HOLE_CLOSE
        return self._node_text(node)

    def _expand_pieces(self, node: Node, *, quoted: bool) -> str:
        pieces: list[str] = []
        offset = node.start_byte
        for child in node.children:
            pieces.append(self.source[offset : child.start_byte].decode("utf-8", "replace"))
            offset = child.end_byte
            if quoted and child.type in ('"', '$"'):
                continue
            pieces.append(self._expand_word(child))
        return "".join(pieces)

    def _expand_variable(self, expansion_text: str) -> str:
        expression = expansion_text.removeprefix("${").removeprefix("$").removesuffix("}")
        if expression in self.values:
            return self.values[expression]
        if self.later:
            return f"${{{expression}}}"
        if re.fullmatch(r"\w+", expression):
            return f"{HOLE_OPEN}{expression}{HOLE_CLOSE}"
        base_match = re.match(r"\w+", expression)
        if default := re.fullmatch(r"(\w+):?-([\w.-]*)", expression):
            return f"{HOLE_OPEN}{default[1]}:-{default[2]}{HOLE_CLOSE}"
        if base_match and re.match(r"\w+:?[-=+?]", expression):
            return f"{HOLE_OPEN}{base_match[0]}:-?{HOLE_CLOSE}"
        if base_match and HOLE_OPEN not in expression:
            return f"{HOLE_OPEN}{expression}{HOLE_CLOSE}"  # cut: ${NAME%%,*}
        return UNKNOWN_VALUE

    def _evaluate_arithmetic(self, node: Node) -> str:
        expression = self._node_text(node).removeprefix("$((").removesuffix("))")
        variable_names = re.findall(r"\$?\{?\b([A-Za-z_]\w*)\b(?!:?[-=])\}?", expression)
        if ":-" not in expression:
            self.shell.sums += [(self._line_number(node), name) for name in variable_names]

        expression = _DEFAULT_PATTERN.sub(_name_without_default, expression)
        filled_expression = _SUM_NAME_PATTERN.sub(self._fill_sum, expression).strip()
        if self.later:
            return f"$(({filled_expression}))"
        total = calculate(filled_expression, lambda name: None)
        if total is not None and total.number is not None:
            return str(total.number)
        return f"{HOLE_OPEN}$(({filled_expression})){HOLE_CLOSE}"

    def _fill_sum(self, match: re.Match[str]) -> str:
        """Return what stands for a name within $((…)): its value, as far as the script sets it."""
        value = self.values.get(match[1])
        if value is None:
            return "_" if match[1] in self.often else match[1]
        inner = value.removeprefix(HOLE_OPEN).removesuffix(HOLE_CLOSE)
        if inner.startswith("$((") and inner.endswith("))"):
            return f"({inner[3:-2]})"
        return inner if re.fullmatch(r"\w+", inner) else "_"


def _name_without_default(match: re.Match[str]) -> str:
    """Return the name in ${NAME:-8} where every job has the variable; else a name of nothing."""
    return match[1] if match[1] in _ALWAYS_SET else "_"


def _unescape(text: str, *, quoted: bool) -> str:
    text = text.replace("\\\n", "")
    return re.sub(r'\\([$`"\\])' if quoted else r"\\(.)", r"\1", text)


def inner_text(command_words: tuple[str, ...]) -> str | None:
    """Return the text that this command passes to a shell: of `bash -c TEXT`, or `eval WORDS`."""
    if command_words and command_words[0] == "eval":
        return " ".join(command_words[1:])
    for shell_index, word in enumerate(command_words[:-2]):
        if re.fullmatch(r"(\S*/)?(ba|da|z|k)?sh", word):
            for option_index in range(shell_index + 1, len(command_words) - 1):
                if re.fullmatch(r"-\w*c", command_words[option_index]):
                    return command_words[option_index + 1]
                if not command_words[option_index].startswith("-"):
                    break
    return None


def _words_before_shell(command_words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words before the shell in `srun … bash -c`: srun runs what the shell runs."""
    for index, word in enumerate(command_words):
        if re.fullmatch(r"(\S*/)?(ba|da|z|k)?sh", word):
            return command_words[:index]
    return ()
