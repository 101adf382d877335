"""All exercises of Part I: is each start refused, each solution right, and each mutant seen?

    python -m tests.steps.practice_all          (or: make practice-all)

It prints a line for each exercise that is not as it should be, then the figures.
"""

import ast
import random
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from steps.companion.curriculum import Curriculum
from steps.companion.difference import Difference
from steps.companion.exercise import exercise_of
from steps.companion.practice import check_file, file_of
from steps.companion.promises import AT_ONCE

ROOT = Path(__file__).resolve().parents[2]
SEED, DRAWN = 22, 30  # of the mutants
# Mutants that mean the same, or what another step shows: {the line: why}.
_FIRST = "the heap has one entry, which is taken at once, whatever its number"
_EVEN = "the sign does not matter to what is computed with it: a square, or a cosine"
_EPS = "eps is smaller than the digits that are promised"
UNSEEN = {
    "waiting = [((self.creator.sequence_nr), self.creator)]"
    "  # a heap: the latest call comes first": _FIRST,
    "waiting = [((self.grad_fn.sequence_nr), self.grad_fn)]"
    "  # a heap: the latest call comes first": _FIRST,
    "heapq.heappush(waiting, ((x.grad_fn.sequence_nr), x.grad_fn))": "the order is what step 16 "
    "shows; here only a name changes",
    "if len(f.inputs) > 1 or (1 > len(f.outputs)):": "what has two outputs there has two inputs",
    "return (((target - x)) ** 2).mean()": _EVEN,
    "return 0.5 + 0.5 * math.cos(math.pi * min(1, ((warmup - step)) / (steps - warmup)))": _EVEN,
    "return 0.5 + 0.5 * math.cos(math.pi * min(1, (step - warmup) / ((warmup - steps))))": _EVEN,
    "s = ctx.spread((ctx.mean(x) - x))": _EVEN,
    "p.array -= self.lr * g / ((np.sqrt(v) - self.eps))": _EPS,
    "p.array -= self.lr / (1 - beta1**step) * m / ((root - self.eps))": _EPS,
    "factor = min(1, max_norm / ((norm.item() - 1e-06)))": _EPS,
    "y = np.lib.stride_tricks.sliding_window_view(x, (k, k), axis=(-2, (1)))": "x has two "
    "dimensions there, and 1 is the last",
    "squares = ((mean(x, dim, keepdim=True) - x)) ** 2": _EVEN,
    "scale = self.weight / ((var - self.eps)) ** 0.5": _EPS,
    "scores = where(Tensor(np.tri(*scores.shape[(2):], dtype=bool)), scores, -np.inf)": "np.tri(t) "
    "is np.tri(t, t)",
    "right = (net(x).argmax(1) == t).sum().item()": "net(x) has two dimensions",
    "h, w = (n * stride for n in x.shape[-4:(2)])": "x has four dimensions there",
}
# Exercises whose solution takes more than a second: the tests leave them out.
SLOW = set("44 45d 49 52a 52b 52c 53a 55b 56b 56d 56e 57a 57c 57d 58c 58d 59a 59b 59c".split())
_SWAPPED = (ast.Sub, ast.Div, ast.MatMult, ast.Pow, ast.FloorDiv)
_ORDERED = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def sandbox(folder):
    """The curriculum in a folder of its own, so that no practice file of the repository is
    touched."""
    for name in ("steps", "tinytorch"):
        (folder / name).symlink_to(ROOT / name)
    return Curriculum(folder)


def part_one(curriculum):
    """The steps 01 to 60c."""
    return [step for step in curriculum.steps if not step.run and step.number.topic <= 60]


def exercises(curriculum):
    found = (exercise_of(curriculum, step) for step in part_one(curriculum))
    return [each for each in found if each]


def verdict_on(curriculum, exercise, text):
    """What the check says of a text."""
    path = curriculum.root / file_of(exercise)
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return check_file(curriculum, exercise)


def mutants(exercise):
    """The solution with one mistake in a line that the reader writes: [(line, text)]. A line that
    is only indented does not count.

    Swapped operands, = for +=, a sign. Operands whose order does not matter are left alone.
    """
    source, found = exercise.step.source, []
    texts = [node for node in ast.walk(source.tree) if isinstance(node, ast.JoinedStr)]
    inside = {node for text in texts for node in ast.walk(text)}
    spans = {n: task for task in exercise.tasks for n in source.definitions[task.name].span}
    for node in ast.walk(source.tree):
        task = spans.get(getattr(node, "lineno", 0))
        line = source.code.get(getattr(node, "lineno", 0))
        if task is None or node in inside or line not in task.lines:
            continue
        if line.strip() in map(str.strip, task.start.splitlines()):
            continue
        if (change := _mutated(node)) and node.lineno == node.end_lineno:
            text = source.lines[node.lineno - 1].encode()
            text = text[: node.col_offset] + change.encode() + text[node.end_col_offset :]
            lines = list(source.lines)
            lines[node.lineno - 1] = text.decode()
            found.append((node.lineno, "\n".join([*lines, ""])))
    return found


def _mutated(node):
    """The text of a node with a mistake; nothing where there is none to make."""
    match node:
        case ast.AugAssign(target=target, value=value):
            return f"{ast.unparse(target)} = {ast.unparse(value)}"
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return f"({ast.unparse(operand)})"
        case ast.BinOp(left=left, op=op, right=right) if isinstance(op, _SWAPPED):
            return f"({ast.unparse(ast.BinOp(right, op, left))})"
        case ast.Compare(left=left, ops=[op], comparators=[right]) if isinstance(op, _ORDERED):
            return f"({ast.unparse(ast.Compare(right, [op], [left]))})"
        case ast.BinOp(left=left, op=ast.Add(), right=right) if not _joins(left, right):
            return f"({ast.unparse(ast.BinOp(left, ast.Sub(), right))})"
    return None


def _joins(*operands):
    """Whether + joins texts or lists, where - would only be an error."""
    return any(
        isinstance(each, (ast.JoinedStr, ast.List, ast.Tuple, ast.ListComp))
        or isinstance(each, ast.Constant)
        and isinstance(each.value, str)
        for each in operands
    )


def drawn_mutants(found, count=DRAWN):
    """One mutant of each of some exercises: [(exercise, line, text)]. Each exercise has a seed of
    its own, so that a change of one step changes no other draw."""
    drawn = []
    for exercise in found:
        draw = random.Random(f"{SEED} {exercise.step.number}")
        if texts := mutants(exercise):
            drawn.append((draw.random(), (exercise, *draw.choice(texts))))
    return [each for _, each in sorted(drawn, key=lambda pair: pair[0])[:count]]


class Trial:
    """What came of one exercise: complaints, the seconds of its solution, and its mutants."""

    def __init__(self, curriculum, exercise):
        self.complaints, label = [], exercise.step.label

        def refused(text, what):
            verdict = verdict_on(curriculum, exercise, text)
            if verdict.ok:
                self.complaints.append(f"{label}: {what} is not refused")
            return not verdict.ok

        refused(exercise.start(), "the start")
        for task in exercise.tasks if len(exercise.tasks) > 1 else ():
            refused(exercise.start((task,)), f"the solution without {task.name}")
        verdict = verdict_on(curriculum, exercise, exercise.step.source.text)
        self.seconds = verdict.seconds
        if not verdict.ok:
            self.complaints.append(f"{label}: its solution is refused: {verdict.lines}")
        self.right = not self.complaints
        self.seen = self.mutants = 0  # mutants that mean the same do not count
        for line, text in mutants(exercise):
            row = text.splitlines()[line - 1].strip()
            if row not in UNSEEN:
                self.mutants += 1
                self.seen += refused(text, f"a mutant, {row!r} in line {line},")


def main():
    with tempfile.TemporaryDirectory() as folder:
        curriculum = sandbox(Path(folder))
        steps, found = part_one(curriculum), exercises(curriculum)
        able = [step for step in steps if Difference(curriculum, step).changes]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            trials = []
            for trial in pool.map(lambda each: Trial(curriculum, each), found):
                trials.append(trial)
                for complaint in trial.complaints:
                    print(complaint, flush=True)
    slow = [e.step.number for e, t in zip(found, trials, strict=True) if t.seconds > 1]
    right = sum(trial.right for trial in trials)
    print(f"{len(found)} exercises; {len(able)} of {len(steps)} steps change a definition")
    print(f"{right} exercises are refused unsolved, and with one part unsolved, and right solved")
    print(f"{sum(t.seen for t in trials)} of {sum(t.mutants for t in trials)} mutants are seen")
    print("solutions that take more than a second:", *slow)
    return 1 if any(trial.complaints for trial in trials) else 0


if __name__ == "__main__":
    sys.exit(main())
