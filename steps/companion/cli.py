"""The command line: `python -m steps`, and the commands that arguments.py lists."""

from __future__ import annotations

import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from .arguments import COMMANDS, parser_for
from .checks import check_all
from .contract import check_marks, contract, covered
from .curriculum import Curriculum, CurriculumError, Stage
from .difference import Difference
from .finding import found_texts
from .focus import changed_definition
from .history import History
from .move import move
from .names import nearest
from .number import Number
from .overview import beside_line, listing, overview, runs_of, tables, title_of
from .paint import enabled, paint
from .practice import (
    asked_exercise,
    check_file,
    hint,
    practice_line,
    solution,
    write_start,
)
from .promises import Outcome, run_steps
from .propagate import Stopped, propagate, resume
from .reading import current, following, main_road, output_of, page, remember, view
from .source import SourceError
from .stats import table

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: list[str] | None = None, root: Path | None = None) -> int:
    """Run one command. 0: all is well; 1: a promise is broken; 2: the question made no sense."""
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = parser_for(HANDLERS)
    if arguments and not arguments[0].startswith("-") and arguments[0] not in COMMANDS:
        return _refuse(f"There is no command {arguments[0]!r}." + nearest(arguments[0], COMMANDS))
    try:
        if not arguments:
            print(overview(Curriculum(root or ROOT)))
            return 0
        options = parser.parse_args(arguments)
        if (
            arguments[0] in ("run", "show", "next", "practice", "check", "stats", "contract")
            and find_spec("numpy") is None
        ):
            return _refuse("This Python has no NumPy. After `make tour`: source .venv/bin/activate")
        return options.run(Curriculum(root or ROOT), options)
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
    page(listing(curriculum, options.part, options.all))
    return 0


def show_command(curriculum: Curriculum, options) -> int:
    steps = curriculum.select(options.steps) if options.steps else [current(curriculum)]
    page(view(curriculum, step) for step in steps)
    return 0


def next_command(curriculum: Curriculum, options) -> int:
    if options.at:
        step = curriculum.select(options.at)[0]
        if step.run:
            raise CurriculumError(
                f"{step.number} is in depth, and next stays on the main road. "
                f"Read it with: python -m steps show {step.number}"
            )
    else:
        step = following(curriculum, options.back)
    if step is None:
        print("There is none before." if options.back else "That was the last one.")
        if runs_of(curriculum) and not options.back:
            print("In depth there is more: python -m steps list --all")
        return 0
    text = view(curriculum, step)
    remember(curriculum, step)
    page([text, *beside_line(curriculum, step), *practice_line(curriculum, step)])
    return 0


def practice_command(curriculum: Curriculum, options) -> int:
    step = curriculum.step(options.step) if options.step else current(curriculum)
    exercise = asked_exercise(curriculum, step)
    if options.check:
        verdict = check_file(curriculum, exercise)
        first, *rest = verdict.lines
        print("\n".join([paint(first, "green" if verdict.ok else "red"), *rest]))
        return 0 if verdict.ok else 1
    if options.hint:
        print("\n".join(hint(curriculum, exercise)))
    elif options.solution:
        page(solution(curriculum, exercise))
    else:
        for line in write_start(curriculum, exercise, options.again):
            print(line)
    return 0


def run_command(curriculum: Curriculum, options) -> int:
    steps = curriculum.select(options.steps)
    if not options.steps and not options.all:
        steps = main_road(curriculum)
    left_out = [step for step in steps if step.needs and shutil.which(step.needs) is None]
    for step in left_out:
        print(f"{step.label} is left out: there is no program `{step.needs}`")
    steps = [step for step in steps if step not in left_out]
    broken: list[Outcome] = []
    rows = _ran(curriculum, steps, broken, options.verbose)
    if options.verbose:
        page(rows)
    else:
        for row in rows:
            print(row, flush=True)
        for outcome in broken:
            print("\n" + outcome.report())
    return 1 if broken else 0


def _ran(curriculum, steps, broken, verbose):
    """A row for each stage and run when its steps have run, and what they print if it is wanted;
    on a terminal, the row that grows meanwhile."""
    live = enabled() and not verbose
    outcomes = run_steps(steps, curriculum.root)
    parts = curriculum.groups(steps)
    width = 3 + max((len(_ends(chosen)) for _, chosen in parts), default=0)
    for part, chosen in parts:
        done, seconds, kept = [], 0.0, 0
        for step in chosen:
            if live:
                line = _bar(part, chosen, len(done), width, f"{step.label} ...")
                print("\r" + line, end="", flush=True)
            outcome = next(outcomes)
            done.append(outcome)
            if verbose:
                yield paint(f"{step.label}: {title_of(step)}", "bold")
                yield output_of(outcome) + "\n"
            seconds, kept = seconds + outcome.seconds, kept + outcome.kept
        bad = [outcome for outcome in done if not outcome.ok]
        broken += bad
        count = f"{len(done)} step{'s' if len(done) > 1 else ''}, {kept} promises kept"
        if bad:
            count += ", not " + ", ".join(str(each.step.number) for each in bad)
        style = ["red"] if bad else []
        line = _bar(part, chosen, len(done), width, f"{count:34}{seconds:6.1f} s", *style)
        yield ("\r" if live else "") + line + ("\033[K" if live else "")


def _bar(part, chosen, done, width, text, *styles):
    """One line; where the terminal is narrow the bar goes, since a line that wraps stays there."""
    filled = 10 * done // len(chosen)
    bar = paint("#" * filled, "green") + "-" * (10 - filled) + "  "
    head = f" stage {part.number:<2} " if isinstance(part, Stage) else " in depth "
    rest = _ends(chosen).ljust(width)
    if enabled() and len(head + rest + text) + 12 >= shutil.get_terminal_size().columns:
        bar = ""
    return head + bar + rest + paint(text, *styles)


def _ends(steps):
    return f"{steps[0].number}-{steps[-1].number}"


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


def contract_command(curriculum: Curriculum, options) -> int:
    steps = covered(curriculum, curriculum.select(options.steps))
    verdicts = []
    for verdict in contract(curriculum, steps, options.on):
        verdicts.append(verdict)
        word = paint("the same", "green") if verdict.ok else paint("broken", "red")
        print(f" {verdict.step.label:9} {word}", flush=True)
        for complaint in verdict.complaints:
            print("   " + complaint.replace("\n", "\n   "))
    marks = [mark for verdict in verdicts for mark in verdict.marks]
    print(f"{len(marks)} statements hold in the file only" + (":" if marks else ""))
    for mark in marks:
        print("   " + mark)
    complaints = list(check_marks(curriculum, verdicts))
    for complaint in complaints:
        print(complaint)
    return 1 if complaints or not all(verdict.ok for verdict in verdicts) else 0


def stats_command(curriculum: Curriculum, options) -> int:
    for line in table(curriculum, curriculum.select(options.steps)):
        print(line, flush=True)
    return 0


def diff_command(curriculum: Curriculum, options) -> int:
    if options.name and (other := _step_called(curriculum, options.name)):
        step = curriculum.step(options.steps)
        difference = Difference(curriculum, other, against=step)
        page([difference.html() if options.html else difference.text(options.demo)])
    else:
        page(_differences(curriculum, curriculum.select(options.steps), options))
    return 0


def _step_called(curriculum, name):
    """The step that a word names; None where it is no step's name but a definition's."""
    try:
        number = Number.parse(name)
    except ValueError:
        return None
    return None if number.run and number.run not in curriculum.runs else curriculum.step(number)


def _differences(curriculum, steps, options):
    count = 0
    for step in steps:
        difference = Difference(curriculum, step)
        if not options.name:
            text = difference.html() if options.html else difference.text(options.demo)
        else:
            try:
                lines = changed_definition(difference, options.name)
            except CurriculumError:  # of several steps, those that change it are shown
                if len(steps) == 1:
                    raise
                continue
            text = f"{difference.head()}\n{lines}"
        yield "\n" * bool(count) + text
        count += 1
    if not count:
        raise CurriculumError(f"None of the {len(steps)} steps changes {options.name}.")


def history_command(curriculum: Curriculum, options) -> int:
    history = History(curriculum, options.name)
    _tell_faults(history)
    page([history.text() if options.at is None else history.at(options.at)])
    return 0


def find_command(curriculum: Curriculum, options) -> int:
    page(found_texts(curriculum, " ".join(options.words)))
    return 0


def readme_command(curriculum: Curriculum, options) -> int:
    for name, text in tables(curriculum).items():
        (curriculum.root / name).write_text(text, encoding="utf-8")
        print(f"wrote {name}")
    return 0


def _tell_faults(history):
    for fault in history.faults:
        print(f"left out: {fault}", file=sys.stderr)


def where_command(curriculum: Curriculum, options) -> int:
    history = History(curriculum, options.name)
    _tell_faults(history)
    page([history.where()])
    return 0


def propagate_command(curriculum: Curriculum, options) -> int:
    if bool(options.step) == options.go_on:
        raise CurriculumError("propagate takes the step that changed, or --continue after a stop.")
    results = (
        resume(curriculum)
        if options.go_on
        else propagate(curriculum, options.step, options.revision, options.dry_run)
    )
    files = stops = 0
    for result in results:
        if isinstance(result, Stopped):
            stops += 1
            print(f"{result.file}: {result.name} is written anew there; nothing was written to it.")
            print(f"{result.forms}\n{result.advice}")
        else:
            files += 1
            print(f"{result.file}: {', '.join(result.names)}", flush=True)
    if options.dry_run:
        print(f"would be carried into {_counted(files, 'file')}, with {_counted(stops, 'stop')}")
    elif not stops:
        print(f"carried into {_counted(files, 'file')}")
    return 1 if stops else 0


def _counted(count, word):
    return f"{count} {word}{'s' if count != 1 else ''}"


def move_command(curriculum: Curriculum, options) -> int:
    if len(options.names) % 2:
        raise CurriculumError("move takes pairs: the old number and the new one.")
    pairs = list(zip(options.names[::2], options.names[1::2], strict=True))
    moved = move(curriculum, pairs)
    for old, new in moved.renamed.items():
        print(f"{old} -> {new}")
    print(f"wrote {len(moved.written)} file{'s' if len(moved.written) != 1 else ''}")
    if moved.unsure:
        print("\nPlease look at these lines; a number there may be that of a step:")
        print("\n".join(moved.unsure))
    return 0


HANDLERS = {
    "list": list_steps,
    "show": show_command,
    "next": next_command,
    "run": run_command,
    "practice": practice_command,
    "diff": diff_command,
    "history": history_command,
    "where": where_command,
    "find": find_command,
    "check": check_command,
    "stats": stats_command,
    "contract": contract_command,
    "propagate": propagate_command,
    "move": move_command,
    "readme": readme_command,
}
