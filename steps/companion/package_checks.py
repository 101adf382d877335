"""Checks of the package: its modules against the steps that build them, and its imports."""

from __future__ import annotations

from .complaint import Complaint
from .curriculum import Curriculum, Module
from .model import dotted_name
from .source import Import, Source, SourceError

OPTIONAL = set(
    "cupy cupyx einops ml_dtypes mpi4py graphviz matplotlib IPython safetensors "
    "threadpoolctl".split()
)


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
            yield Complaint(where, f"{name} is not in any step that builds the module ({numbers})")
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
            for name in modules_named(each, modules):
                other = modules.get(name, module)
                known = module.finished in other.builders or curriculum.roads.precedes(
                    other.finished, module.finished
                )
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
    definitions = [each for name, each in source.top_level.items() if name != "__getattr__"]
    found = source.others + [(each.first, each.text) for each in definitions]
    for line, text in found:
        yield Complaint(
            f"{name}, line {line}",
            f"holds more than imports and __all__: {text.splitlines()[0]}",
            "an __init__.py only re-exports; a __getattr__ may import on demand",
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
            for target in modules_named(each, known):
                edges[target] = each.line
    for cycle in _cycles(graph):
        first, second = cycle[0], cycle[1]
        yield Complaint(
            f"{files[first]}, line {graph[first][second]}",
            "imports in a circle: " + " -> ".join(cycle),
            "let the lower layer not know the upper one",
        )


def modules_named(each: Import, known) -> list[str]:
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
