"""The command line: `python -m steps list | show | next | run | diff | history | where`, and for
authors `check | stats | propagate | move`."""

from __future__ import annotations

import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from .arguments import COMMANDS, parser_for
from .checks import check_all
from .curriculum import Curriculum, CurriculumError, Stage
from .difference import Difference
from .focus import changed_definition
from .history import History
from .move import carry_out, move
from .moved import answer
from .names import nearest
from .paint import enabled, paint
from .promises import run_steps
from .propagate import Stopped, propagate
from .reading import beside, current, output_of, page, remember, view
from .source import SourceError
from .stats import table


def main(arguments: list[str] | None = None, root: Path | None = None) -> int:
    """Run one command. 0: all is well; 1: a promise is broken; 2: the question made no sense."""
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = parser_for(HANDLERS)
    if arguments and not arguments[0].startswith("-") and arguments[0] not in COMMANDS:
        return _refuse(f"There is no command {arguments[0]!r}." + nearest(arguments[0], COMMANDS))
    try:
        options = parser.parse_args(arguments)
        if arguments[0] in ("run", "show", "next", "check", "stats") and find_spec("numpy") is None:
            return _refuse("This Python has no NumPy. After `make tour`: source .venv/bin/activate")
        curriculum = Curriculum(root or Path(__file__).resolve().parents[2])
        return options.run(curriculum, options)
    except (CurriculumError, SourceError) as error:
        return _refuse(str(error))
    except BrokenPipeError:  # `python -m steps list | head`
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        return _refuse("\nstopped", status=130)


def _refuse(line: str, status: int = 2) -> int:
    print(line, file=sys.stderr)
    return status


def list_steps(curriculum: Curriculum, options) -> int:
    for stage in curriculum.stages:
        chosen = [step for step in curriculum.steps if step.stage == stage]
        title = f"stage {stage.number}  {stage.title}" + ("" if chosen else "  (to come)")
        print(paint(title, "bold"))
        for part, steps in curriculum.groups(chosen):
            if part != stage:
                print(f"  in depth: {part.title}")
            for step in steps:
                kind = "" if step.kind == "lesson" else paint(f"  ({step.kind})", "faint")
                print(f"  {step.number!s:3} {_title(step)}{kind}")
                for module in curriculum.modules:
                    if module.finished == step.number:
                        print(paint(f"      -> {module.name}", "faint"))
        print()
    return 0


def _title(step):
    try:
        return step.title
    except SourceError as error:
        return str(error)


def show_command(curriculum: Curriculum, options) -> int:
    steps = curriculum.select(options.steps) if options.steps else [current(curriculum)]
    page(view(curriculum, step) for step in steps)
    return 0


def next_command(curriculum: Curriculum, options) -> int:
    if options.at:
        step = curriculum.select(options.at)[0]
    else:
        step = beside(curriculum, options.back)
    if step is None:
        print("There is none before." if options.back else "That was the last one.")
        return 0
    text = view(curriculum, step)
    remember(curriculum, step)
    page([text])
    return 0


def run_command(curriculum: Curriculum, options) -> int:
    steps = curriculum.select(options.steps)
    left_out = [step for step in steps if step.needs and shutil.which(step.needs) is None]
    for step in left_out:
        print(f"{step.label} is left out: there is no program `{step.needs}`")
    steps = [step for step in steps if step not in left_out]
    live = enabled() and not options.verbose
    outcomes = run_steps(steps, curriculum.root)
    broken = []
    for part, chosen in curriculum.groups(steps):
        done, seconds, kept = [], 0.0, 0
        for step in chosen:
            if live:
                line = _bar(part, chosen, len(done), f"{step.label} ...")
                print("\r" + line, end="", flush=True)
            outcome = next(outcomes)
            done.append(outcome)
            if options.verbose:
                print(paint(f"{step.label}: {_title(step)}", "bold"))
                print(output_of(outcome) + "\n", flush=True)
            seconds, kept = seconds + outcome.seconds, kept + outcome.kept
        bad = [outcome for outcome in done if not outcome.ok]
        broken += bad
        count = f"{len(done)} step{'s' if len(done) > 1 else ''}, {kept} promises kept"
        if bad:
            count += ", not " + ", ".join(str(each.step.number) for each in bad)
        style = ["red"] if bad else []
        line = _bar(part, chosen, len(done), f"{count:34}{seconds:6.1f} s", *style)
        print(("\r" if live else "") + line + ("\033[K" if live else ""), flush=True)
    for outcome in [] if options.verbose else broken:
        print("\n" + outcome.report())
    return 1 if broken else 0


def _bar(part, chosen, done, text, *styles):
    """One line; where the terminal is narrow the bar goes, since a line that wraps stays there."""
    filled = 10 * done // len(chosen)
    bar = paint("#" * filled, "green") + "-" * (10 - filled) + "  "
    head = f" stage {part.number:<2} " if isinstance(part, Stage) else " in depth "
    rest = f"{chosen[0].number}-{chosen[-1].number}".ljust(7) + " "
    if enabled() and len(head + rest + text) + 12 >= shutil.get_terminal_size().columns:
        bar = ""
    return head + bar + rest + paint(text, *styles)


def check_command(curriculum: Curriculum, options) -> int:
    steps = curriculum.select(options.steps)
    failed = 0
    for name, size, complaints in check_all(curriculum, steps, options.only):
        verdict = paint(f"{len(complaints)} wrong", "red") if complaints else paint("kept", "green")
        print(f" {name:16} {size:10} {verdict}", flush=True)
        for complaint in complaints:
            print("   " + str(complaint).replace("\n", "\n   "))
        failed += len(complaints)
    return 1 if failed else 0


def stats_command(curriculum: Curriculum, options) -> int:
    for line in table(curriculum, curriculum.select(options.steps)):
        print(line, flush=True)
    return 0


def diff_command(curriculum: Curriculum, options) -> int:
    steps = curriculum.select(options.steps)
    found, refusals = [], []
    for step in steps:
        difference = Difference(curriculum, step)
        if not options.name:
            found.append(difference.html() if options.html else difference.text(options.demo))
            continue
        try:
            lines = changed_definition(difference, options.name)
        except CurriculumError as error:  # of several steps, those that change it are shown
            refusals.append(str(error))
            continue
        found.append(f"{difference.head()}\n{lines}")
    if not found:
        none = f"None of the {len(steps)} steps changes {options.name}."
        raise CurriculumError(refusals[0] if len(steps) == 1 else none)
    print("\n\n".join(found))
    return 0


def history_command(curriculum: Curriculum, options) -> int:
    history = History(curriculum, options.name)
    _tell_faults(history)
    print(history.text() if options.at is None else history.at(options.at))
    return 0


def _tell_faults(history):
    for fault in history.faults:
        print(f"left out: {fault}", file=sys.stderr)


def where_command(curriculum: Curriculum, options) -> int:
    history = History(curriculum, options.name)
    _tell_faults(history)
    print(history.where())
    return 0


def propagate_command(curriculum: Curriculum, options) -> int:
    files, stopped = 0, False
    for result in propagate(curriculum, options.step, options.revision):
        if isinstance(result, Stopped):
            stopped = True
            print(f"{result.file}: {result.name} is written anew there; nothing was written to it.")
            print(result.advice)
            continue
        files += 1
        print(f"{result.file}: {', '.join(result.names)}")
    print(f"carried into {files} file{'s' if files != 1 else ''}")
    return 1 if stopped else 0


def move_command(curriculum: Curriculum, options) -> int:
    if len(options.names) % 2 or bool(options.names) == bool(options.plan):
        raise CurriculumError("move takes pairs: the old number and the new one.")
    pairs = list(zip(options.names[::2], options.names[1::2], strict=True))
    moved = (
        carry_out(curriculum, options.plan, options.since)
        if options.plan
        else move(curriculum, pairs)
    )
    for old, new in moved.renamed.items():
        print(f"{old} -> {new}")
    print(f"wrote {len(moved.written)} file{'s' if len(moved.written) != 1 else ''}")
    if moved.unsure:
        print("\nPlease look at these lines; a number there may be that of a step:")
        print("\n".join(moved.unsure))
    return 0


def moved_command(curriculum: Curriculum, options) -> int:
    print(answer(curriculum, options.step))
    return 0


HANDLERS = {
    "list": list_steps,
    "show": show_command,
    "next": next_command,
    "run": run_command,
    "diff": diff_command,
    "history": history_command,
    "where": where_command,
    "check": check_command,
    "stats": stats_command,
    "propagate": propagate_command,
    "move": move_command,
    "moved": moved_command,
}
