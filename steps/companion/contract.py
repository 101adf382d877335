"""The contract: the demo of a main step is a program for PyTorch.

From stage 7 on it prints the same whether the definitions are those of the file above it or those
of the package. Both run in a process of its own, in float64 (from stage 11 on, where types are the
lesson, as they are), and what they print is compared. Names that the package offers come from
there; the step's own programs (`[contract] own` of curriculum.toml) are run on them. What can only
hold in the file ends in `# here: reason` and is left out on both sides.
"""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import inspect
import math
import re
import subprocess
import sys
import textwrap
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from .complaint import Complaint
from .difference import Difference
from .processes import one_thread
from .source import Source

FIRST_STAGE = 7
TYPES = 11  # from this stage on, Part II, the steps have types of their own, and run as they are
MARKS = 10  # statements that may hold in the file only, in all of Part I
TIMEOUT = 300  # seconds
UNSAID = ("var", "correction")  # None in the package, which means 1
NOISE = 1e-12  # what float64 leaves where the result is 0
PLACES = (  # where a name stands in two, the first has it: functional.dropout before torch.dropout
    "{}.nn.functional",
    "{}.nn",
    "{}.nn.init",
    "{}.nn.utils",
    "{}.optim",
    "{}.optim.lr_scheduler",
    "{}.utils.data",
    "{}.utils.checkpoint",
    "{}.utils.flop_counter",
    "{}.profiler",
    "{}.amp",
    "{}.autograd.functional",
    "{}.autograd",
    "{}",
    "{}.distributed",
    "{}.distributed.simulator",
    "{}.distributed.optim",
    "{}.distributed.nn.functional",
    "{}.nn.parallel",
    "{}.utils.data.distributed",
    "{}.compiler",
)
_MARK = re.compile(r"# here: (.*)$")
_TIME = re.compile(
    r"\d[\d,]*(?:\.\d+)? ?"
    r"(?=(?:s|ms|us|KB|MB|GB|seconds|times (?:as (?:fast|long|much)|faster|slower|longer))\b)"
)
_FLOAT = re.compile(r"-?\d+\.\d*(?:e[-+]?\d+)?|-?\d+e[-+]?\d+|-?\b(?:inf|nan)\b")


@dataclass
class Verdict:
    """What the contract found about one step."""

    step: object
    marks: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.complaints


def covered(curriculum, steps):
    """The main steps that the contract is asked of: from stage 7 on, but for those excepted."""
    return [
        step
        for step in steps
        if step.run is None
        and step.stage is not None
        and step.stage.number >= FIRST_STAGE
        and str(step.number) not in curriculum.contract.get("excepted", {})
    ]


def contract(curriculum, steps, library: str = "tinytorch", at_once: int = 2):
    """A Verdict for each step, in order. With library="torch" the demos need only run there."""
    with ThreadPoolExecutor(at_once) as pool:
        yield from pool.map(lambda step: judge(curriculum, step, library), steps)


def judge(curriculum, step, library: str = "tinytorch") -> Verdict:
    own = curriculum.contract.get("own", [])
    text, marks = without_marked(step.source)
    double = step.stage.number < TYPES
    verdict = Verdict(step, marks)
    wanted = asked(curriculum, step) if library == "tinytorch" else []
    theirs = run(curriculum.root, step.path, text, own, library, wanted, double)
    if theirs.failed:
        verdict.complaints.append(f"does not run on {library}: {theirs.failed}")
    if theirs.failed or library != "tinytorch":
        return verdict
    ours = run(curriculum.root, step.path, text, own, double=double)
    if ours.failed:
        verdict.complaints.append(f"does not run by itself: {ours.failed}")
        return verdict
    verdict.complaints += differing(ours.lines, theirs.lines)
    verdict.complaints += [
        f"adds or changes {name}, which its demo does not call"
        for name in wanted
        if name not in theirs.reached
    ]
    verdict.complaints += forms(curriculum, step)
    return verdict


# --- the text of a step --------------------------------------------------------------------------


def without_marked(source: Source) -> tuple[str, list[str]]:
    """The text of a step without the statements that end in `# here: reason`, and the reasons."""
    lines, reasons = list(source.lines), []
    for number, line in enumerate(source.lines, 1):
        if number < source.demo_first or not (mark := _MARK.search(line)):
            continue
        reasons.append(f"{source.path.name}, line {number}: {mark[1]}")
        spans = [
            (node.lineno, node.end_lineno, node.col_offset)
            for node in ast.walk(source.tree)
            if isinstance(node, ast.stmt) and node.lineno <= number <= node.end_lineno
        ]
        starting = [span for span in spans if span[0] == number]
        first, last, column = max(starting) if starting else min(spans, key=lambda s: s[1] - s[0])
        lines[first - 1 : last] = [" " * column + "pass"] + [""] * (last - first)
    return "\n".join(lines) + "\n", reasons


def offered(library: str) -> dict:
    """All that a library offers by a public name, in the places that programs import from."""
    found = {}
    for place in PLACES:
        try:
            module = importlib.import_module(place.format(library))
        except ImportError:
            continue
        for name, value in vars(module).items():
            typing = getattr(value, "__module__", "") == "typing"  # such as its Generator
            if not (name.startswith("_") or inspect.ismodule(value) or typing):
                found.setdefault(name, value)
    return found


# --- running it ----------------------------------------------------------------------------------


@dataclass
class Run:
    """What a step printed, why it failed, and what of a library it called."""

    lines: list[str] = field(default_factory=list)
    failed: str = ""
    reached: list[str] = field(default_factory=list)


def run(root: Path, path: Path, text: str, own, library: str = "", wanted=(), double=True) -> Run:
    """Run the text of a step on a library, or by itself; which of the names wanted does it call?"""
    code = "import sys; from steps.companion.contract import main; "
    code += f"main({str(path)!r}, {list(own)!r}, {library!r}, {list(wanted)!r}, {double})"
    try:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code],
            input=text,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            cwd=root,
            env=one_thread() | {"PYTHONPATH": str(root)},
        )
    except subprocess.TimeoutExpired:
        return Run(failed=f"stopped after {TIMEOUT} s")
    said = done.stderr.strip().splitlines()
    if done.returncode:
        return Run(failed=said[-1] if said else f"exit status {done.returncode}")
    reached = said[-1].split()[1:] if said and said[-1].startswith("reached: ") else []
    return Run(done.stdout.splitlines(), reached=reached)


def main(path: str, own: list[str], library: str, wanted: list[str], double: bool) -> None:
    """Run the step whose text comes from standard input on a library, or by itself.

    double: all its numbers are float64, and so are the library's new tensors. What a step imports
    from the package comes from the library, too.
    """
    text = sys.stdin.read()
    if double:
        text = text.replace("np.float32", "np.float64")
    step = types.ModuleType("__main__")
    sys.modules["__main__"] = step  # where pickle looks for its classes
    space = vars(step)
    space["__file__"] = path
    if not library:
        return exec(compile(text, path, "exec"), space)
    tree = ast.parse(text)
    defined = {node.name for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    theirs = offered(library)
    if double:
        importlib.import_module(library).set_default_dtype(theirs["float64"])
    # A name of Python's own, such as sum, is the library's only where the step defines it.
    space |= {n: v for n, v in theirs.items() if n in defined or not hasattr(builtins, n)}
    tree.body = [
        node
        for node in tree.body
        if (
            isinstance(node, (ast.Import, ast.ImportFrom, ast.If))
            or getattr(node, "name", None) in own
        )
        and not of_package(node, library)
    ]
    program, called = compile(tree, path, "exec"), set()
    if wanted:  # the function that it returns would trace lines: None
        for each in (sys, threading):  # this thread, and those that the demo starts
            each.settrace(lambda frame, event, argument: called.add(frame.f_code))
    exec(program, space)
    for each in (sys, threading):
        each.settrace(None)
    if wanted:
        reached = [name for name in wanted if codes_of(theirs, name) & called]
        print("reached:", *reached, file=sys.stderr)


def of_package(node: ast.stmt, library: str) -> bool:
    """Whether it imports from the package what another library is to offer."""
    if library == "tinytorch" or not isinstance(node, (ast.Import, ast.ImportFrom)):
        return False
    name = node.module or "" if isinstance(node, ast.ImportFrom) else node.names[0].name
    return name.partition(".")[0] == "tinytorch"


# --- 1, same -------------------------------------------------------------------------------------


def normal(line: str) -> str:
    """A line without times, and without the ways in which sizes, types and nodes are printed."""
    line = re.sub(r"(?:tinytorch|torch)\.Size\(\[(\d+)\]\)", r"(\1,)", line)
    line = re.sub(r"(?:tinytorch|torch)\.Size\(\[(.*?)\]\)", r"(\1)", line)
    line = re.sub(r"\b(?:tinytorch|torch|np|numpy)\.(?=(?:float|int|bool)\d*\b)", "", line)
    line = re.sub(r"<(\w+?)Backward\d*(?: object at \w+)?>", r"<\1>", line)
    return _TIME.sub("#", line).rstrip()


def differing(ours: list[str], theirs: list[str]) -> list[str]:
    """The first line in which two runs differ, as a complaint."""
    for a, b in zip(ours, theirs, strict=False):
        if not alike(normal(a), normal(b)):
            return [f"the file prints    {a}\nthe package prints {b}"]
    if len(ours) != len(theirs):
        return [f"the file prints {len(ours)} lines, the package {len(theirs)}"]
    return []


def alike(a: str, b: str) -> bool:
    """The same text, and the same numbers to four digits or to the last one that is printed.

    Blanks count unless the line holds a number with a point, or a time: these shift what follows.
    """
    if a == b:
        return True
    if "#" not in a and not _FLOAT.search(a):
        return False
    if re.sub(r"\s", "", _FLOAT.sub("#", a)) != re.sub(r"\s", "", _FLOAT.sub("#", b)):
        return False
    pairs = zip(_FLOAT.findall(a), _FLOAT.findall(b), strict=True)
    return all(_near(x, y) for x, y in pairs)


def _near(x: str, y: str) -> bool:
    a, b = float(x), float(y)
    if x == y or not (math.isfinite(a) and math.isfinite(b)):
        return x == y
    return abs(a - b) <= max(1e-4 * max(abs(a), abs(b)), NOISE)


# --- 3, reached, and 6, forms --------------------------------------------------------------------


def asked(curriculum, step) -> list[str]:
    """What the demo of a step has to call: what the step adds or changes and the package offers.

    Not the Functions: a program calls them by other names, and nn.Sigmoid is no Function. Nor
    values such as bfloat16, though Tensor has a method of that name.
    """
    theirs, functions = offered("tinytorch"), ["Function", *functions_of(step.source)]
    names = [
        change.name
        for change in Difference(curriculum, step).changes
        if change.kind in ("new", "changed") and change.added + change.removed
    ]
    own = curriculum.contract.get("own", [])
    top = {name.partition(".")[0] for name in functions} | set(own)
    top |= {name for name, value in theirs.items() if not callable(value)}
    return [n for n in names if n.partition(".")[0] not in top and codes_of(theirs, n)]


def functions_of(source: Source) -> list[str]:
    """The classes of a file that derive from Function, in order."""
    found = ["Function"]
    for node in source.tree.body:
        if isinstance(node, ast.ClassDef):
            if {base.id for base in node.bases if isinstance(base, ast.Name)} & set(found):
                found.append(node.name)
    return found[1:]


def codes_of(theirs: dict, name: str) -> set:
    """The code that runs when what a library offers by this name is called; none if it has none.

    Of a class: that of its methods, and of the classes that derive from it.
    """
    owner, _, member = name.partition(".")
    value = theirs.get(owner)
    if member:
        return _codes([getattr(value, member, None)])
    if not inspect.isclass(value):
        return _codes([value, getattr(theirs["Tensor"], name, None)])
    classes = [value]
    for each in classes:
        classes += each.__subclasses__()
    codes = [_codes(vars(each).values()) for each in (*classes, *value.__mro__[1:])]
    return set().union(*codes[: len(classes)]) or next(filter(None, codes), set())


def _codes(values) -> set:
    values = [getattr(each, "__func__", None) or getattr(each, "fget", each) for each in values]
    values = [each.func if isinstance(each, functools.partial) else each for each in values]
    values = [inspect.unwrap(each) for each in values if callable(each)]
    return {each.__code__ for each in values if inspect.isfunction(each)}


def forms(curriculum, step):
    """Parameters of a simple form that the package does not have: by name, order or default."""
    source, theirs, before = step.source, offered("tinytorch"), curriculum.before(step)
    old = before.source.definitions if before else {}
    left_out = set(curriculum.contract.get("own", [])) | set(functions_of(source))
    for name, definition in source.definitions.items():
        owner, _, member = name.partition(".")
        known = name in old and old[name].text == definition.text
        if known or owner in left_out or definition.kind != "function":
            continue
        value = theirs.get(owner)
        value = getattr(value, member, None) if member else value
        node = ast.parse(textwrap.dedent(definition.text)).body[0]
        if callable(value) and isinstance(node, ast.FunctionDef):
            yield from _form(name, node, inspect.signature(value).parameters)


def _form(name, node, theirs):
    loose = any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in theirs.values())
    arguments = [each.arg for each in node.args.args]
    defaults = dict(zip(arguments[::-1], node.args.defaults[::-1], strict=False))
    keyword = [each.arg for each in node.args.kwonlyargs]
    defaults |= zip(keyword, node.args.kw_defaults, strict=True)
    for each, default in defaults.items():
        if each not in theirs:
            if not loose:
                yield f"{name}(): the package has no parameter {each}"
            continue
        try:
            ours = ast.literal_eval(default)
        except ValueError:
            continue  # an expression, such as default_generator
        if ours != (1 if (name, each) == UNSAID else theirs[each].default):
            yield f"{name}({each}={ours!r}): the package has {theirs[each].default!r}"
    places = [[*theirs].index(each) for each in arguments if each in theirs]
    if places != sorted(places):
        yield f"{name}(): the package has its parameters in another order"


def check_marks(curriculum, verdicts: list[Verdict]):
    """At most ten marks in Part I, and no own name that the package offers."""
    first = [verdict for verdict in verdicts if verdict.step.stage.number < TYPES]
    marks = [mark for verdict in first for mark in verdict.marks]
    if len(marks) > MARKS:
        yield Complaint("contract", f"{len(marks)} statements are marked, at most {MARKS} may be")
    for name in sorted(set(curriculum.contract.get("own", [])) & offered("tinytorch").keys()):
        yield Complaint("contract", f"{name} is an own program, but the package offers it")
