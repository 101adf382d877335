"""The contract: the demo of a main step is a program for PyTorch.

From stage 7 on it prints the same whether the definitions are those of the file above it or those
of the package. Here both run in float64, each in a process of its own, and what they print is
compared. Names that the package offers come from there; the step's own programs (`[contract] own`
of curriculum.toml) are run on them. What can only hold in the file ends in `# here: reason` and is
left out on both sides.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import re
import subprocess
import sys
import types
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from .complaint import Complaint
from .difference import Difference
from .processes import one_thread
from .source import Source

FIRST_STAGE = 7
MARKS = 10  # statements that may hold in the file only, in all of Part I
TIMEOUT = 300  # seconds
PLACES = (  # where a name stands in two, the first has it: functional.dropout before torch.dropout
    "{}.nn.functional",
    "{}.nn",
    "{}.nn.init",
    "{}.nn.utils",
    "{}.optim",
    "{}.optim.lr_scheduler",
    "{}.utils.data",
    "{}.utils.checkpoint",
    "{}",
)
_MARK = re.compile(r"# here: (.*)$")
_TIME = re.compile(r"\d[\d,]*(?:\.\d+)? ?(?=(?:s|ms|us|MB|KB|seconds|times)\b)")
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
    verdict = Verdict(step, marks)
    theirs = _run(curriculum.root, step.path, text, library, own)
    if isinstance(theirs, str):
        verdict.complaints.append(f"does not run on {library}: {theirs}")
        return verdict
    if library != "tinytorch":
        return verdict
    ours = _run(curriculum.root, step.path, text, "", own)
    if isinstance(ours, str):
        verdict.complaints.append(f"does not run in float64: {ours}")
        return verdict
    verdict.complaints += differing(ours, theirs)
    verdict.complaints += [
        f"adds {name}, which its demo does not call" for name in unreached(curriculum, step, own)
    ]
    verdict.complaints += forms(curriculum, step, own)
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
            if not name.startswith("_") and not inspect.ismodule(value):
                found.setdefault(name, value)
    return found


def main(path: str, library: str, own: list[str]) -> None:
    """Run the step whose text comes from standard input, in float64, on a library or by itself."""
    text = sys.stdin.read().replace("np.float32", "np.float64")
    step = types.ModuleType("__main__")
    sys.modules["__main__"] = step  # where pickle looks for its classes
    space = vars(step)
    space["__file__"] = path
    if not library:
        return exec(compile(text, path, "exec"), space)
    tree = ast.parse(text)
    defined = {node.name for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    theirs = offered(library)
    importlib.import_module(library).set_default_dtype(theirs["float64"])
    # A name of Python's own, such as sum, is the library's only where the step defines it.
    space |= {n: v for n, v in theirs.items() if n in defined or not hasattr(builtins, n)}
    tree.body = [
        node
        for node in tree.body
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.If))
        or getattr(node, "name", None) in own
    ]
    exec(compile(tree, path, "exec"), space)


def _run(root: Path, path: Path, text: str, library: str, own) -> list[str] | str:
    """The lines that a step prints; a text that says why it failed."""
    code = "import sys; from steps.companion.contract import main; "
    code += f"main({str(path)!r}, {library!r}, {list(own)!r})"
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
        return f"stopped after {TIMEOUT} s"
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    return done.stdout.splitlines()


# --- 1, same -------------------------------------------------------------------------------------


def normal(line: str) -> str:
    """A line without times, and without the ways in which sizes, types and nodes are printed."""
    line = re.sub(r"(?:tinytorch|torch)\.Size\(\[(\d+)\]\)", r"(\1,)", line)
    line = re.sub(r"(?:tinytorch|torch)\.Size\(\[(.*?)\]\)", r"(\1)", line)
    line = re.sub(r"\b(?:tinytorch|torch|np|numpy)\.(?=(?:float|int|bool)\d*\b)", "", line)
    line = re.sub(r"<(\w+?)Backward\d*(?: object at \w+)?>", r"<\1>", line)
    return " ".join(_TIME.sub("#", line).split())


def differing(ours: list[str], theirs: list[str]) -> list[str]:
    """The first line in which two runs differ, as a complaint."""
    for a, b in zip(map(normal, ours), map(normal, theirs), strict=False):
        if not alike(a, b):
            return [f"the file prints    {a}\nthe package prints {b}"]
    if len(ours) != len(theirs):
        return [f"the file prints {len(ours)} lines, the package {len(theirs)}"]
    return []


def alike(a: str, b: str) -> bool:
    """The same text, and the same numbers to four digits or to the last one that is printed."""
    if a == b:
        return True
    if re.sub(r"\s", "", _FLOAT.sub("#", a)) != re.sub(r"\s", "", _FLOAT.sub("#", b)):
        return False
    pairs = zip(_FLOAT.findall(a), _FLOAT.findall(b), strict=True)
    return all(_near(x, y) for x, y in pairs)


def _near(x: str, y: str) -> bool:
    if x == y:
        return True
    digits = [len(each.partition("e")[0].partition(".")[2]) for each in (x, y)]
    power = max(int(each.partition("e")[2] or 0) for each in (x, y))
    unit = 10.0 ** (power - min(digits)) if max(digits) == min(digits) else 0.0
    a, b = float(x), float(y)
    return abs(a - b) <= max(1.01 * unit * (digits[0] > 2), 1e-4 * max(abs(a), abs(b)), 1e-9)


# --- 3, reached, and 6, forms --------------------------------------------------------------------


def unreached(curriculum, step, own) -> list[str]:
    """What a step adds or changes and the package offers, but the demo does not call."""
    source, theirs = step.source, offered("tinytorch")
    used = _used(source, own)
    difference = Difference(curriculum, step)
    missing = []
    for name in [each.name for each in difference.changes if each.kind in ("new", "changed")]:
        owner, _, member = name.partition(".")
        if owner in own or (owner not in theirs and not _is_method(theirs, owner)):
            continue
        if owner in used and (not member or member in used or member.startswith("__")):
            continue
        if not (member and member in used):
            missing.append(name)
    return missing


def _is_method(theirs, name):
    return hasattr(theirs["Tensor"], name)


def _used(source: Source, own) -> set[str]:
    """The names in the demo, in the own programs that it uses, and the bases of all classes."""
    top = {node.name: node for node in source.tree.body if hasattr(node, "name")}
    waiting = [node for node in source.tree.body if node.lineno >= source.demo_first]
    used: set[str] = set()
    while waiting:
        for node in ast.walk(waiting.pop()):
            name = getattr(node, "id", None) or getattr(node, "attr", None)
            if name is None or name in used:
                continue
            used.add(name)
            each = top.get(name)
            if name in own and each is not None:
                waiting.append(each)
            elif isinstance(each, ast.ClassDef):
                waiting += each.bases
    return used


def forms(curriculum, step, own) -> list[str]:
    """Parameters of a simple form that the package does not have: by name, order or default."""
    theirs, complaints = offered("tinytorch"), []
    for name, definition in step.source.top_level.items():
        if name in own or name not in theirs or definition.kind == "value":
            continue
        before = curriculum.before(step)
        if before and name in before.source.top_level:
            if before.source.top_level[name].text == definition.text:
                continue
        node = ast.parse(definition.text).body[0]
        if isinstance(node, ast.ClassDef):
            inits = [n for n in node.body if getattr(n, "name", "") == "__init__"]
            if not inits:
                continue
            node = inits[0]
        if not isinstance(node, ast.FunctionDef):
            continue
        try:
            signature = inspect.signature(theirs[name])
        except (ValueError, TypeError):
            continue
        complaints += _form(name, node, signature)
    return complaints


def _form(name, node, signature):
    parameters = signature.parameters
    loose = any(p.kind is p.VAR_POSITIONAL for p in parameters.values())
    arguments = [a for a in node.args.args if a.arg != "self"]
    defaults = dict(
        zip([a.arg for a in node.args.args][::-1], node.args.defaults[::-1], strict=False)
    )
    keyword = dict(zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True))
    defaults |= {a.arg: default for a, default in keyword.items() if default is not None}
    places = []
    for argument in [*arguments, *node.args.kwonlyargs]:
        if argument.arg not in parameters:
            if argument.arg in defaults and not loose:
                yield f"{name}(): the package has no parameter {argument.arg}"
            continue
        if argument in arguments:
            places.append([*parameters].index(argument.arg))
        if argument.arg in defaults:
            ours, theirs = ast.unparse(defaults[argument.arg]), parameters[argument.arg].default
            same = ours == repr(theirs)
            try:
                same = same or ast.literal_eval(defaults[argument.arg]) == theirs
            except ValueError:
                same = True  # an expression, such as default_generator
            if not same and theirs is not None:
                yield f"{name}({argument.arg}={ours}): the package has {theirs!r}"
    if places != sorted(places):
        yield f"{name}(): the package has its parameters in another order"


def check_marks(curriculum, verdicts: list[Verdict]):
    """At most ten marks, and no own name that the package offers."""
    marks = [mark for verdict in verdicts for mark in verdict.marks]
    if len(marks) > MARKS:
        yield Complaint("contract", f"{len(marks)} statements are marked, at most {MARKS} may be")
    for name in sorted(set(curriculum.contract.get("own", [])) & offered("tinytorch").keys()):
        yield Complaint("contract", f"{name} is an own program, but the package offers it")
