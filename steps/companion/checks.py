"""What `python -m steps check` checks. A check yields complaints; none means: promise kept."""

from __future__ import annotations

import difflib
import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase

from .curriculum import Curriculum, Module, Step, dotted_name, heir, with_renames
from .promises import AT_ONCE, PromiseError, one_thread, promises_of, run_step
from .source import Import, Source, SourceError

COLUMNS = 100
DOCSTRING_LINES = 40  # a docstring stays below
FRAMEWORK_LINES = 500  # docstrings, comments and blank lines included
LONG_LINES = 800  # in the steps whose framework grows into the core of the package
LONG_TOPICS = range(31, 56)
BUDGET = {"lesson": 60, "catalogue": 150}
FIRST_RULE = 6  # the first step whose framework has derivatives
DEMO_ONLY = {"graphviz", "matplotlib"}
OPTIONAL = {"cupy", "cupyx", "ml_dtypes", "graphviz", "matplotlib", "IPython", "safetensors"}

_GRADIENTS = Path(__file__).with_name("gradients.py")


@dataclass(frozen=True)
class Complaint:
    """What is wrong, where, and how to put it right."""

    where: str
    what: str
    how: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" + (f" ({self.how})" if self.how else "")


# One step at a time


def check_promises(curriculum: Curriculum, step: Step):
    """The step runs and prints what it says."""
    try:
        promises = promises_of(step.source)
    except PromiseError as error:
        yield Complaint(step.label, str(error), "put it at the end of the print")
        return
    if not promises:
        yield Complaint(step.label, "promises nothing", "end a print with `# -> what it prints`")
    outcome = run_step(step, curriculum.root)
    if outcome.failure:
        yield Complaint(step.label, outcome.failure)
    for each in outcome.broken:
        printed = "nothing" if each.printed is None else repr(each.printed)
        yield Complaint(
            f"{step.label}, line {each.line}", f"printed {printed}, promised {each.promised!r}"
        )


def check_form(curriculum: Curriculum, step: Step):
    """The docstring says what a step must say, and the file is no longer than a reader can bear."""
    source = step.source
    if not re.match(rf"Step {step.number}: \S", source.docstring):
        yield Complaint(f"{step.label}, line 1", f"the title is not `Step {step.number}: Title`")
    if source.docstring_lines >= DOCSTRING_LINES:
        yield Complaint(
            step.label,
            f"the docstring has {source.docstring_lines} lines",
            f"stay under {DOCSTRING_LINES}",
        )
    if step.number.topic > 1 and not re.search(
        r"^(Changed|New|Gone|Moved)\b.*:", source.docstring, re.M
    ):
        yield Complaint(step.label, "the docstring has no line `Changed: ... New: ...`")
    if not re.search(r"^Try: \S", source.docstring, re.M):
        yield Complaint(step.label, "the docstring has no line `Try: ...`")
    if source.demo_first > len(source.lines):
        yield Complaint(step.label, 'has no demo below `if __name__ == "__main__":`')
    length = source.demo_first - 1
    allowed = LONG_LINES if step.number.topic in LONG_TOPICS else FRAMEWORK_LINES
    if length > allowed:
        yield Complaint(step.label, f"has {length} lines above the demo, at most {allowed} may be")
    for number, line in enumerate(source.lines, 1):
        if len(line) > COLUMNS:
            yield Complaint(
                f"{step.label}, line {number}",
                f"{len(line)} columns, at most {COLUMNS} are allowed",
            )


def check_difference(curriculum: Curriculum, step: Step):
    """Against the step before: within the budget, in the same order, nothing dropped in silence."""
    before = curriculum.before(step)
    if before is None:
        return
    added = added_lines(curriculum, before, step)
    budget = step.budget or BUDGET[step.kind]
    if len(added) > budget:
        yield Complaint(
            step.label,
            f"adds {len(added)} lines of framework code to {before.label}; "
            f"it has {budget}, being a {step.kind}",
            "split it, or name it under `catalogues` in curriculum.toml",
        )
    old, new = before.source, step.source
    if list(old.code.values()) == list(new.code.values()):
        yield Complaint(step.label, f"changes no line of code of {before.label}")
    yield from _undeclared_removals(curriculum, before, step)
    yield from _false_declarations(before, step)
    common = [name for name in old.definitions if name in new.definitions]
    kept = [name for name in new.definitions if name in old.definitions]
    if common != kept:
        moved = next(new for old, new in zip(common, kept, strict=True) if old != new)
        yield Complaint(
            f"{step.label}, line {new.definitions[moved].first}",
            f"{moved} has another place than in {before.label}",
            "keep the order, so that the difference stays the lesson",
        )


def added_lines(curriculum: Curriculum, before: Step, step: Step) -> list[str]:
    """The lines of framework code that a step adds.

    What it takes up again does not count, nor does a line that only follows a declared renaming.
    """
    old, new = before.source, step.source
    added, resumed = [], set()
    for name, definition in new.top_level.items():
        if name in old.definitions:
            continue
        if earlier := curriculum.resumed_from(name, step):
            resumed.update(definition.span)
            added += _new_lines(earlier.source.code_of(name), new.code_of(name))
    former = [with_renames(text, step.renames) for text in old.framework_code.values()]
    rest = [text for n, text in new.framework_code.items() if n not in resumed]
    return _new_lines(former, rest) + added


def _new_lines(old: list[str], new: list[str]) -> list[str]:
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    changes = [change for change in matcher.get_opcodes() if change[0] in ("insert", "replace")]
    return [line for _, _, _, first, last in changes for line in new[first:last]]


def _undeclared_removals(curriculum, before, step):
    old, new = before.source.definitions, step.source.definitions
    for name, definition in old.items():
        if name in new or definition.owner and definition.owner not in new:
            continue  # a class that goes takes its members along; it is named once
        renamed = step.renames.get(name)
        if renamed in new or name in step.removes:
            continue
        if curriculum.module_of(name, step):
            continue
        yield Complaint(
            step.label,
            f"drops {name} of {before.label} in silence",
            f"name it under [step.{step.number}] in curriculum.toml, or keep it",
        )
    for member in old.values():
        if member.owner not in step.renames or member.name in step.removes:
            continue
        if (renamed := heir(member.name, step.renames)) not in new:
            yield Complaint(
                step.label,
                f"renames {member.owner} and drops {member.name} in silence",
                f"name it under [step.{step.number}] removes, or define {renamed}",
            )


def _false_declarations(before, step):
    old, new = before.source.definitions, step.source.definitions
    for name in [*step.removes, *step.renames]:
        if name not in old:
            problem = f"{before.label} has no {name}"
        elif name in new:
            problem = f"{step.label} still has {name}"
        else:
            continue
        yield Complaint(f"curriculum.toml, [step.{step.number}]", problem, "take it out")
    for renamed in step.renames.values():
        if renamed not in new:
            yield Complaint(
                f"curriculum.toml, [step.{step.number}]", f"{step.label} has no {renamed}"
            )
    if (step.removes or step.renames or step.budget) and not step.why:
        yield Complaint(f"curriculum.toml, [step.{step.number}]", "says no `why`")


def check_imports(curriculum: Curriculum, step: Step):
    """A step imports the standard library, NumPy, and modules that an earlier step finished."""
    finished = {module.dotted: module for module in curriculum.modules}
    for each in step.source.imports:
        top = each.module.partition(".")[0]
        where = f"{step.label}, line {each.line}"
        if top in sys.stdlib_module_names or top == "numpy":
            continue
        if top in DEMO_ONLY:
            if each.line < step.source.demo_first and not each.in_function:
                yield Complaint(where, f"imports {top} in the framework", "only a demo may")
        elif top == "tinytorch":
            for name in _modules_named(each, finished):
                if name not in finished:
                    yield Complaint(
                        where,
                        f"imports {name}, which is no module of [modules] in curriculum.toml",
                        "import the module itself: from tinytorch.folder.module import name",
                    )
                elif finished[name].finished >= step.number:
                    yield Complaint(
                        where,
                        f"imports {name}, which step {finished[name].finished} finishes",
                        "hold its definitions in the step, or import it later",
                    )
        elif top not in OPTIONAL:
            yield Complaint(where, f"imports {each.module}", "only NumPy and tinytorch are there")


def check_gradients(curriculum: Curriculum, step: Step):
    """The framework passes the gradient checks that it can already pass."""
    result = gradient_result(step)
    if isinstance(result, str):
        yield Complaint(step.label, f"the gradient check failed: {result}")
        return
    for name, found in result["wrong"].items():
        yield Complaint(step.label, f"the derivative of {name} is wrong: {found}")
    if result["checked"]:
        return
    own = {"Variable", "Tensor"} & step.source.top_level.keys()
    if own and step.number.topic >= FIRST_RULE:
        yield Complaint(step.label, "the gradient check found no operation that it knows")
    for name, definition in step.source.definitions.items():
        if definition.owner and name.endswith(".backward"):
            yield Complaint(
                f"{step.label}, line {definition.first}",
                f"nothing checks {name}",
                f"list an expression under [step.{step.number}] gradcheck in curriculum.toml",
            )
            break


def gradient_result(step: Step) -> dict | str:
    """What gradients.py prints for a step; the last lines of its error output when it fails."""
    command = [sys.executable, str(_GRADIENTS), str(step.path), *step.gradcheck]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=one_thread(), timeout=120, check=True
        )
    except subprocess.TimeoutExpired:
        return "stopped after 120 s"
    except subprocess.CalledProcessError as error:
        return "\n".join(error.stderr.strip().splitlines()[-4:])
    return json.loads(done.stdout.splitlines()[-1])


STEP_CHECKS = {
    "promises": check_promises,
    "form": check_form,
    "difference": check_difference,
    "imports": check_imports,
    "gradients": check_gradients,
}


# The whole


def check_numbers(curriculum: Curriculum):
    """The parts of a topic are a, b, c, ..., and each step belongs to a stage."""
    parts: dict[int, str] = {}
    for step in curriculum.steps:
        parts[step.number.topic] = parts.get(step.number.topic, "") + (step.number.part or "-")
    for topic, letters in parts.items():
        if letters not in ("-", ascii_lowercase[: len(letters)]):
            names = ", ".join(f"{topic}{each}".strip("-") for each in letters)
            yield Complaint("steps", f"the parts of {topic} are {names}", "write a, b, c, ...")
    for step in curriculum.steps:
        if step.stage is None:
            yield Complaint(step.label, "is in no stage", "add the stage to curriculum.toml")
    for path in sorted(curriculum.folder.glob("step*.py")):
        if not re.fullmatch(r"step\d\d+[a-z]?\.py", path.name):
            yield Complaint(f"steps/{path.name}", "is not named stepNN.py or stepNNa.py")


def check_modules(curriculum: Curriculum):
    """Every definition of the package is, source for source, that of the last step to build it."""
    listed = {module.path: module for module in curriculum.modules}
    for path in curriculum.package_files():
        name = path.relative_to(curriculum.root).as_posix()
        if path.name != "__init__.py" and path not in listed:
            yield Complaint(name, "no step builds it", "name its steps under [modules]")
        elif path.name == "__init__.py" and path not in listed:
            yield from _only_exports(name, path)
    for module in curriculum.modules:
        if module.path.exists():
            yield from check_module(curriculum, module)
        elif module.finished in curriculum.by_number:
            yield Complaint(module.name, f"is missing; step {module.finished} finishes it")


def check_module(curriculum: Curriculum, module: Module):
    """One module against the steps that build it."""
    try:
        source = module.source
    except SourceError as error:
        yield Complaint(module.name, str(error))
        return
    for line, text in source.others:
        yield Complaint(
            f"{module.name}, line {line}",
            f"is neither import nor definition: {text}",
            "a module holds nothing else",
        )
    builders = curriculum.builders(module)
    for name, definition in source.top_level.items():
        where = f"{module.name}, line {definition.first}"
        holders = [step for step in builders if name in step.source.top_level]
        if not holders:
            numbers = ", ".join(map(str, module.builders))
            yield Complaint(where, f"{name} is in no step that builds the module ({numbers})")
            continue
        taught = holders[-1].source.top_level[name]
        if taught.text != definition.text:
            offset, ours, theirs = _first_difference(definition.text, taught.text)
            yield Complaint(
                f"{module.name}, line {definition.first + offset}",
                f"{name} is not what {holders[-1].label} teaches, line {taught.first + offset}: "
                f"{ours!r} instead of {theirs!r}",
                f"python -m steps propagate {holders[-1].number.short}",
            )


def check_order(curriculum: Curriculum):
    """A module imports only what the reader knows when it is finished: modules that are finished
    too, or that the same step has under construction."""
    modules = {module.dotted: module for module in curriculum.modules}
    for module in curriculum.modules:
        imports = module.source.imports if module.path.exists() else []
        for each in imports:
            for name in _modules_named(each, modules):
                other = modules.get(name, module)
                known = other.finished <= module.finished or module.finished in other.builders
                if not known and not each.type_checking:
                    yield Complaint(
                        f"{module.name}, line {each.line}",
                        f"imports {name}, which step {other.finished} finishes, and is itself "
                        f"finished by step {module.finished}",
                        "move what it needs to a module that an earlier step finishes",
                    )


def _first_difference(ours: str, theirs: str):
    a, b = ours.splitlines(), theirs.splitlines()
    for offset, (one, other) in enumerate(zip(a, b, strict=False)):
        if one != other:
            return offset, one.strip(), other.strip()
    offset = min(len(a), len(b))
    return offset, "".join(a[offset : offset + 1]).strip(), "".join(b[offset : offset + 1]).strip()


def _only_exports(name, path):
    source = Source(path)
    found = source.others + [(each.first, each.text) for each in source.top_level.values()]
    for line, text in found:
        yield Complaint(
            f"{name}, line {line}",
            f"holds more than imports and __all__: {text.splitlines()[0]}",
            "an __init__.py only re-exports",
        )


def check_package_imports(curriculum: Curriculum):
    """The imports of the package have no cycle, and none hides inside a function."""
    graph: dict[str, dict[str, int]] = {}
    files = {}
    known = {
        dotted_name(path.relative_to(curriculum.root).as_posix())
        for path in curriculum.package_files()
    }
    for path in curriculum.package_files():
        name = path.relative_to(curriculum.root).as_posix()
        dotted = dotted_name(name)
        package = dotted if path.name == "__init__.py" else dotted.rpartition(".")[0]
        files[dotted] = name
        edges = graph.setdefault(dotted, {})
        for each in Source(path, package=package).imports:
            top = each.module.partition(".")[0]
            if each.in_function and top not in OPTIONAL:
                yield Complaint(
                    f"{name}, line {each.line}", f"imports {each.module} inside a function"
                )
            if top != "tinytorch" or each.type_checking:
                continue
            for target in _modules_named(each, known):
                edges[target] = each.line
    for cycle in _cycles(graph):
        first, second = cycle[0], cycle[1]
        yield Complaint(
            f"{files[first]}, line {graph[first][second]}",
            "imports in a circle: " + " -> ".join(cycle),
            "let the lower layer not know the upper one",
        )


def _modules_named(each: Import, known) -> list[str]:
    """The modules that an import reaches: `from package import module` reaches the module."""
    inner = [f"{each.module}.{name}" for name in each.names]
    modules = [name for name in inner if name in known]
    if len(modules) < len(inner) or not inner:
        modules.append(each.module)
    return modules


def _cycles(graph):
    """One cycle for each edge that leads back on a depth-first walk: names, first one repeated."""
    done: set[str] = set()
    for start in graph:
        if start in done:
            continue
        path, trail = [start], [iter(graph[start])]
        while path:
            for target in trail[-1]:
                if target in path:
                    yield [*path[path.index(target) :], target]
                elif target in graph and target not in done:
                    path.append(target)
                    trail.append(iter(graph[target]))
                    break
            else:
                done.add(path.pop())
                trail.pop()


WHOLE_CHECKS = {
    "numbers": check_numbers,
    "modules": check_modules,
    "order": check_order,
    "package imports": check_package_imports,
}


def check_all(curriculum: Curriculum, steps: list[Step]):
    """Run every check; yields (name of the check, how much it looked at, its complaints)."""
    count = "1 step" if len(steps) == 1 else f"{len(steps)} steps"
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for name, check in STEP_CHECKS.items():
            found = pool.map(lambda step, check=check: _complaints(check, curriculum, step), steps)
            yield name, count, [each for complaints in found for each in complaints]
    if steps == curriculum.steps:
        for name, check in WHOLE_CHECKS.items():
            files = len(curriculum.package_files())
            yield (
                name,
                count if check is check_numbers else f"{files} files",
                list(check(curriculum)),
            )


def _complaints(check, curriculum, step):
    try:
        return list(check(curriculum, step))
    except SourceError as error:
        return [Complaint(step.label, str(error))]
