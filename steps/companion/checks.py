"""What `python -m steps check` checks. A check yields complaints; none means: promise kept."""

from __future__ import annotations

import re
import sys
from concurrent.futures import ThreadPoolExecutor

from .complaint import Complaint
from .coverage_checks import check_coverage, check_promises
from .curriculum import Curriculum, CurriculumError, Step
from .difference_checks import check_difference
from .exercise import exercise_of
from .gradient_checks import check_gradients
from .kind_checks import check_kind, check_kinds, check_numbers
from .minutes import check_hours
from .names import nearest
from .overview import check_tables
from .package_checks import (
    OPTIONAL,
    check_modules,
    check_order,
    check_package_imports,
    modules_named,
)
from .promises import AT_ONCE
from .references import check_documents, check_references
from .source import SourceError
from .stability import check_stable

COLUMNS = 100
DOCSTRING_LINES = 40  # a docstring stays below
CODE_LINES = 1200  # above the demo, on the main road, where one file grows to the end
DEPTH_LINES = 1000  # in a run, which has modules to import from
FREE_IMPORTS = 13  # the first stage of the main road that imports the finished package
DEMO_ONLY = {"graphviz", "matplotlib"}


def check_form(curriculum: Curriculum, step: Step):
    """The docstring says what a step must say, and the file is short enough to read."""
    source = step.source
    if not re.match(rf"Step {step.number}: \S", source.docstring):
        yield Complaint(f"{step.label}, line 1", f"the title is not `Step {step.number}: Title`")
    if source.docstring_lines >= DOCSTRING_LINES:
        yield Complaint(
            step.label,
            f"the docstring has {source.docstring_lines} lines",
            f"stay under {DOCSTRING_LINES}",
        )
    if (step.run or step.number.topic > 1) and not re.search(
        r"^(Changed|New|Gone|Moved)\b.*:", source.docstring, re.M
    ):
        yield Complaint(step.label, "the docstring has no line `Changed: ... New: ...`")
    if not re.search(r"^Try: \S", source.docstring, re.M):
        yield Complaint(step.label, "the docstring has no line `Try: ...`")
    if source.demo_first > len(source.lines):
        yield Complaint(step.label, 'has no demo below `if __name__ == "__main__":`')
    length = len(source.framework_code)
    allowed = max(step.long, DEPTH_LINES if step.run else CODE_LINES)
    if length > allowed:
        yield Complaint(
            step.label, f"has {length} lines of code above the demo; at most {allowed} are allowed"
        )
    if step.practice is not None:
        try:
            exercise_of(curriculum, step)
        except CurriculumError as error:
            yield Complaint(step.label, str(error))
    for number, line in enumerate(source.lines, 1):
        if len(line) > COLUMNS:
            yield Complaint(
                f"{step.label}, line {number}",
                f"{len(line)} columns, at most {COLUMNS} are allowed",
            )


def check_imports(curriculum: Curriculum, step: Step):
    """A step imports the standard library, NumPy, and modules that an earlier step finished.

    From stage 13 on, a step of the main road may import all modules: it builds simple forms.
    """
    free = step.run is None and step.stage is not None and step.stage.number >= FREE_IMPORTS
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
            for name in modules_named(each, finished):
                if name not in finished:
                    yield Complaint(
                        where,
                        f"imports {name}, which is not listed under [modules] in curriculum.toml",
                        "import the module itself: from tinytorch.folder.module import name",
                    )
                elif not free and not curriculum.is_finished(finished[name], step):
                    yield Complaint(
                        where,
                        f"imports {name}, which step {finished[name].finished} finishes",
                        "hold its definitions in the step, or import it later",
                    )
        elif top not in OPTIONAL:
            yield Complaint(where, f"imports {each.module}", "only NumPy and tinytorch are there")


# One step at a time
STEP_CHECKS = {
    "promises": check_promises,
    "coverage": check_coverage,
    "form": check_form,
    "kind": check_kind,
    "difference": check_difference,
    "imports": check_imports,
    "references": check_references,
    "gradients": check_gradients,
}

# The same, but only where they are asked for
LONG_CHECKS = {"stable": check_stable}

# The whole
WHOLE_CHECKS = {
    "numbers": check_numbers,
    "kinds": check_kinds,
    "hours": check_hours,
    "tables": check_tables,
    "modules": check_modules,
    "order": check_order,
    "package imports": check_package_imports,
    "documents": check_documents,
}
OF_STEPS = (check_numbers, check_kinds, check_hours, check_tables)


def check_all(curriculum: Curriculum, steps: list[Step], only: str = ""):
    """Run the checks; yields (name of the check, how much it looked at, its complaints).

    `only` names the checks to run, with commas between; the checks of the whole run where all
    steps are chosen.
    """
    wanted = [each.strip() for each in only.split(",")] if only else []
    known = STEP_CHECKS | LONG_CHECKS | WHOLE_CHECKS
    for each in wanted:
        if each not in known:
            near = nearest(each, known)
            raise CurriculumError(f"There is no check {each!r}." + near)
    count = "1 step" if len(steps) == 1 else f"{len(steps)} steps"
    files = f"{len(curriculum.package_files())} files"
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for name, check in (STEP_CHECKS | LONG_CHECKS).items():
            if name in wanted or not wanted and name in STEP_CHECKS:
                run = _guarded(check, curriculum)
                found = pool.map(run, steps)
                yield name, count, [each for complaints in found for each in complaints]
    for name, check in WHOLE_CHECKS.items():
        if name in wanted or not wanted and steps == curriculum.steps:
            yield name, count if check in OF_STEPS else files, _guarded(check)(curriculum)


def _guarded(check, *first):
    """The check as a function that returns a list; a file that cannot be read is a complaint."""

    def run(last):
        try:
            return list(check(*first, last))
        except SourceError as error:
            return [Complaint("steps", str(error))]

    return run
