"""What a step adds: its lines of framework code that the step before does not have."""

from __future__ import annotations

import ast
import difflib

from .curriculum import Curriculum, Step
from .names import heir, with_renames
from .source import statements_in


def added_lines(curriculum: Curriculum, step: Step) -> dict[int, str]:
    """The lines of framework code that a step adds, by number; all lines of the first step.

    What it takes up again is compared with its last form, and a line that only follows a declared
    renaming is not added.
    """
    if step.added is None:
        step.added = _added_lines(curriculum, step)
    return step.added


def _added_lines(curriculum, step):
    before, new = curriculum.before(step), step.source
    if before is None:
        return dict(new.framework_code)
    replaced = curriculum.replaced(step)
    found, resumed = [], set()
    for name, definition in new.top_level.items():
        if name in before.source.definitions and name not in replaced:
            continue
        if earlier := curriculum.resumed_from(name, step):
            resumed.update(definition.span)
            mine = {n: new.code[n] for n in definition.span if n in new.code}
            found += _new_lines(earlier.source.code_of(name), mine)
    left = {line for name in replaced for line in before.source.definitions[name].span}
    code = before.source.framework_code
    former = [with_renames(text, step.renames) for n, text in code.items() if n not in left]
    rest = {n: text for n, text in new.framework_code.items() if n not in resumed}
    found += _new_lines(former, rest)
    if step.joins:
        found = _lines_of_no_branch(curriculum, step)
    return {number: new.code[number] for number in sorted(found)}


def _lines_of_no_branch(curriculum, step):
    """The numbers of the lines that none of the branches has which a step brings together. The
    order of definitions does not count: each branch has its own."""
    branches = [curriculum.before(step), *(curriculum.by_number[each] for each in step.joins)]
    left, found = dict(step.source.framework_code), set()
    for name, definition in step.source.top_level.items():
        mine = {n: left.pop(n) for n in definition.span if n in left}
        olds = [each.source.code_of(name) for each in branches if name in each.source.top_level]
        new = [{*_new_lines(old, mine)} for old in olds] or [{*mine}]
        found |= set.intersection(*new)
    known = {text for branch in branches for text in branch.source.framework_code.values()}
    return found | {n for n, text in left.items() if text not in known}


def _new_lines(old: list[str], new: dict[int, str]) -> list[int]:
    """The numbers of the new lines that a comparison of the two texts adds."""
    numbers = list(new)
    matcher = difflib.SequenceMatcher(None, old, list(new.values()), autojunk=False)
    changes = [change for change in matcher.get_opcodes() if change[0] in ("insert", "replace")]
    return [number for *_, first, last in changes for number in numbers[first:last]]


def changing_lines(curriculum: Curriculum, step: Step) -> set[int]:
    """Those of the added lines that change a definition which the reader knows already."""
    before = curriculum.before(step)
    if before is None:
        return set()
    formers = {new: old for old, new in step.renames.items()}
    replaced = curriculum.replaced(step)
    found = set()
    for name, definition in step.source.definitions.items():
        top = definition.owner or name
        if top in replaced:
            continue
        known = heir(name, formers) in before.source.definitions
        if not known and top not in before.source.definitions:
            earlier = curriculum.resumed_from(top, step)
            known = earlier is not None and name in earlier.source.definitions
        if known:
            is_class = definition.kind == "class"
            found.update(step.source.shell(name) if is_class else definition.span)
    return found & added_lines(curriculum, step).keys()


def added_statements(curriculum: Curriculum, step: Step) -> list[range]:
    """The statements that hold an added line, each as the lines of its own text.

    Of a compound statement these are the lines above its body. Left out are those that do nothing
    (a docstring, `...`, `try`), a method that says only that others define it (`raise
    NotImplementedError`), and the definitions that curriculum.toml names under `unrun`.
    """
    added = added_lines(curriculum, step).keys()
    unrun = [step.source.definitions.get(name) for name in step.unrun]
    left_out = {line for each in unrun if each for line in each.span}
    found = []
    for node in _nodes(step.source.tree):
        if node.lineno >= step.source.demo_first or node.lineno in left_out:
            continue
        lines = _own_lines(node)
        if any(line in added for line in lines):
            found.append(lines)
    return sorted(found, key=lambda lines: lines.start)


def _nodes(node):
    """All statements that run, without what stands below `if TYPE_CHECKING:`, and without an
    import that has a fallback where a package is missing: a machine runs one half of it."""
    for child in statements_in(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.Try) and _only_imports(child):
            continue
        if not _does_nothing(child, node):
            yield child
        yield from _nodes(child)


def _only_imports(node):
    return all(isinstance(each, (ast.Import, ast.ImportFrom)) for each in node.body)


def _does_nothing(node, parent):
    match node:
        case ast.Try() | ast.Global() | ast.Nonlocal() | ast.Expr(value=ast.Constant()):
            return True
        case ast.AnnAssign(value=None):
            return True
        case ast.Raise(exc=ast.Name(id="NotImplementedError")):
            if isinstance(parent, ast.FunctionDef):
                others = [each for each in parent.body if each is not node]
                return all(isinstance(each, ast.Expr) for each in others)
    return False


def _own_lines(node):
    """The lines of a statement, of a compound one without the statements that it holds."""
    last = node.end_lineno
    body = getattr(node, "body", None) or getattr(node, "cases", None)
    if body:
        first = body[0].pattern if isinstance(body[0], ast.match_case) else body[0]
        decorators = getattr(first, "decorator_list", [])
        last = max(node.lineno, min([first.lineno, *(each.lineno for each in decorators)]) - 1)
    return range(node.lineno, last + 1)
