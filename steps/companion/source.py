"""A Python file as the companion sees it: definitions, imports, lines of code, and the demo."""

from __future__ import annotations

import ast
import io
import tokenize
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path


class SourceError(Exception):
    """A file that cannot be parsed. Its text names file, line and reason."""


@dataclass(frozen=True)
class Definition:
    """A function, class, method or assignment, with its decorators and the comments above it."""

    name: str  # "square", "Variable", "Variable.backward", "EPSILON"
    kind: str  # "function", "class" or "value"; a member of a class is a function or a value
    text: str  # the source lines as they stand in the file
    first: int  # the lines of the file, counted from 1, both included
    last: int
    owner: str = ""  # the class that a member belongs to

    @property
    def span(self) -> range:
        return range(self.first, self.last + 1)


@dataclass(frozen=True)
class Import:
    """One imported module, with absolute name. `names` are those after `from ... import`."""

    module: str
    names: tuple[str, ...]
    line: int
    in_function: bool
    type_checking: bool


@dataclass(frozen=True)
class Tokens:
    """What only a tokenizer can tell of a text: where code ends, and what is comment or string."""

    ends: dict[int, int | None]  # for each line with code, the column where it ends; None: all code
    comments: list[tuple[int, int, str]]  # line, column, text
    long_strings: list[tuple[int, str]]  # the first line and the text of those of several lines


@lru_cache(maxsize=2048)  # all steps: a tokenizer is slow, and several checks ask
def tokens_of(text: str) -> Tokens:
    """One pass of the tokenizer over a text."""
    found = Tokens({}, [], [])
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        kind, words, (first, column), (last, end), _ = token
        if kind == tokenize.COMMENT:
            found.comments.append((first, column, words))
        elif kind == tokenize.STRING and first != last:
            found.long_strings.append((first, words))
        if kind not in _NO_CODE and words.strip():
            found.ends.update(dict.fromkeys(range(first, last)))
            found.ends[last] = end
    return found


class Source:
    """The text of one file, taken apart. Every part is worked out when it is first asked for."""

    def __init__(self, path: Path, text: str | None = None, package: str = ""):
        self.path = path
        try:
            self.text = path.read_text(encoding="utf-8") if text is None else text
        except UnicodeDecodeError as error:
            raise SourceError(f"{path.name}: {error}") from None
        self.lines = self.text.splitlines()
        self.package = package  # what a relative import starts from, e.g. "tinytorch.core"
        try:
            self.tree = ast.parse(self.text)
        except SyntaxError as error:
            raise SourceError(f"{path.name}, line {error.lineno or 1}: {error.msg}") from None
        except ValueError as error:  # a null byte
            raise SourceError(f"{path.name}: {error}") from None

    @cached_property
    def docstring(self) -> str:
        return ast.get_docstring(self.tree, clean=False) or ""

    @cached_property
    def docstring_lines(self) -> int:
        return len(self.docstring.rstrip().splitlines())

    @property
    def title(self) -> str:
        """The first line of the docstring, e.g. "Step 07: Backpropagation without hands"."""
        return self.docstring.partition("\n")[0].strip()

    @cached_property
    def demo_first(self) -> int:
        """The line of `if __name__ == "__main__":`; one past the end where there is none."""
        for node in self.tree.body:
            if isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'":
                return node.lineno
        return len(self.lines) + 1

    @cached_property
    def framework_first(self) -> int:
        """The line after the docstring."""
        body = self.tree.body
        return body[0].end_lineno + 1 if body and _is_string(body[0]) else 1

    @cached_property
    def framework(self) -> list[str]:
        """The lines between the docstring and the demo."""
        return self.lines[self.framework_first - 1 : self.demo_first - 1]

    @cached_property
    def demo(self) -> list[str]:
        return self.lines[self.demo_first - 1 :]

    @cached_property
    def definitions(self) -> dict[str, Definition]:
        """The definitions of the framework in order, each class followed by its members."""
        found: dict[str, Definition] = {}
        for node in self.tree.body:
            if node.lineno < self.demo_first and (each := self._definition(node, found)):
                found[each.name] = each
                for inner in node.body if isinstance(node, ast.ClassDef) else ():
                    if member := self._definition(inner, found, owner=each.name):
                        found[member.name] = member
        return found

    @cached_property
    def top_level(self) -> dict[str, Definition]:
        return {name: each for name, each in self.definitions.items() if not each.owner}

    def code_of(self, name: str) -> list[str]:
        """The lines of code of a definition."""
        definition = self.definitions[name]
        return [self.code[n] for n in definition.span if n in self.code]

    def shell(self, name: str) -> list[int]:
        """The lines of a class without its members; all lines of any other definition."""
        members = [each for each in self.definitions.values() if each.owner == name]
        inside = {line for member in members for line in member.span}
        lines = [n for n in self.definitions[name].span if n not in inside]
        return [n for n in lines if self.lines[n - 1].strip()]

    @cached_property
    def others(self) -> list[tuple[int, str]]:
        """The other statements above the demo: (line, first line of text)."""
        found = []
        for position, node in enumerate(self.tree.body):
            if node.lineno >= self.demo_first or _is_import(node):
                continue
            if position == 0 and _is_string(node):
                continue
            if self._definition(node, {}) is None:
                found.append((node.lineno, self.lines[node.lineno - 1].strip()))
        return found

    @cached_property
    def import_lines(self) -> set[int]:
        """The lines of the imports at the margin, above the demo."""
        nodes = [node for node in self.tree.body if _is_import(node)]
        spans = [range(node.lineno, node.end_lineno + 1) for node in nodes]
        return {line for span in spans for line in span if line < self.demo_first}

    @cached_property
    def imports(self) -> list[Import]:
        """Every import of the file, also inside functions, in order of lines."""
        found: list[Import] = []
        self._collect_imports(self.tree, found, in_function=False, type_checking=False)
        return found

    @cached_property
    def code(self) -> dict[int, str]:
        """The lines that hold code, by number, without comments. Docstrings do not count."""
        strings = set()
        for node in statements(self.tree):
            if _is_string(node):
                strings.update(range(node.lineno, node.end_lineno + 1))
        ends = tokens_of(self.text).ends
        numbers = sorted(ends.keys() - strings)
        return {number: self.lines[number - 1][: ends[number]].rstrip() for number in numbers}

    @cached_property
    def framework_code(self) -> dict[int, str]:
        return {number: line for number, line in self.code.items() if number < self.demo_first}

    @cached_property
    def demo_code(self) -> dict[int, str]:
        return {number: line for number, line in self.code.items() if number >= self.demo_first}

    def _definition(self, node, taken, owner=""):
        """The definition that a statement makes, or None. `taken` holds the names before it."""
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                name, kind = node.name, "function"
            case ast.ClassDef():
                name, kind = node.name, "class"
            case ast.Assign(targets=[target]) | ast.AnnAssign(target=target):
                name, kind = ast.unparse(target).strip("()"), "value"
            case ast.Assign(targets=targets):
                name, kind = ", ".join(map(ast.unparse, targets)), "value"
            case _:
                return None
        if name == "__all__":
            return None
        name = _free(f"{owner}.{name}" if owner else name, taken)
        first = self._first_line(node)
        text = "\n".join(self.lines[first - 1 : node.end_lineno])
        return Definition(name, kind, text, first, node.end_lineno, owner)

    def _first_line(self, node):
        """The line of the first decorator, or of the comment that stands directly above."""
        decorators = getattr(node, "decorator_list", [])
        first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
        indent = " " * node.col_offset + "#"
        while first > 1 and self.lines[first - 2].startswith(indent):
            first -= 1
        return first

    def _collect_imports(self, node, found, in_function, type_checking):
        for child in statements_in(node):
            if isinstance(child, ast.Import):
                for alias in child.names:
                    found.append(Import(alias.name, (), child.lineno, in_function, type_checking))
            elif isinstance(child, ast.ImportFrom):
                module = child.module or ""
                if child.level:
                    base = self.package.split(".")[: len(self.package.split(".")) - child.level + 1]
                    module = ".".join([*base, *([module] if module else [])])
                names = tuple(alias.name for alias in child.names)
                found.append(Import(module, names, child.lineno, in_function, type_checking))
            else:
                is_function = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))
                is_types = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
                self._collect_imports(
                    child, found, in_function or is_function, type_checking or is_types
                )


def statements_in(node: ast.AST):
    """The statements directly in a node, those of its `except` and `case` clauses included.

    Nothing else is looked at: an expression holds no statement.
    """
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        elif isinstance(child, (ast.excepthandler, ast.match_case)):
            yield from statements_in(child)


def statements(node: ast.AST):
    """All statements in a node, each before those that it holds."""
    for child in statements_in(node):
        yield child
        yield from statements(child)


_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def _is_string(node) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _is_import(node) -> bool:
    """An import, also one that may fail (`except ImportError: cupy = None`), or `__all__`."""
    match node:
        case ast.Import() | ast.ImportFrom():
            return True
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return True
        case ast.If():
            return "TYPE_CHECKING" in ast.unparse(node.test) and all(map(_is_import, node.body))
        case ast.Try():
            return all(map(_is_import, node.body)) and all(
                isinstance(each, ast.Assign)
                and isinstance(each.value, ast.Constant)
                and each.value.value is None
                for handler in node.handlers
                for each in handler.body
            )
    return False


def _free(name, taken):
    """A name defined twice (a property and its setter) gets a number: "Tensor.grad (2)"."""
    count, free = 1, name
    while free in taken:
        count += 1
        free = f"{name} ({count})"
    return free
