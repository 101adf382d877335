"""The command line: `python -m steps list | run | diff | history | where | check | stats
| propagate | move`."""

from __future__ import annotations

import argparse
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from .checks import check_all
from .curriculum import Curriculum, CurriculumError, fault_of
from .difference import Difference
from .history import History
from .move import move
from .names import nearest
from .paint import enabled, paint
from .promises import run_steps
from .propagate import Stopped, propagate
from .source import SourceError
from .stats import table

COMMANDS = {
    "list": "the stages and their steps",
    "run": "run steps and compare what they print with what they promise",
    "diff": "what a step changes against the step before",
    "history": "each form that a definition had, and the steps that gave it",
    "where": "the steps that built a definition, and where it lives",
    "check": "check everything that the steps promise",
    "stats": "how much the steps of each stage add, change and run",
    "propagate": "carry a change of a step into the later steps and the package",
    "move": "rename steps, and every reference to them",
}


def main(arguments: list[str] | None = None, root: Path | None = None) -> int:
    """Run one command. 0: all is well; 1: a promise is broken; 2: the question made no sense."""
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = _parser()
    if arguments and not arguments[0].startswith("-") and arguments[0] not in COMMANDS:
        return _refuse(f"There is no command {arguments[0]!r}." + nearest(arguments[0], COMMANDS))
    try:
        options = parser.parse_args(arguments)
        if arguments[0] in ("run", "check", "stats") and find_spec("numpy") is None:
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


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        print(f"{self.prog}: {message} (see {self.prog} --help)", file=sys.stderr)
        raise SystemExit(2)


def _parser():
    parser = _Parser(prog="python -m steps", description="The companion of the steps.")
    commands = parser.add_subparsers(required=True, metavar="command")

    def add(name, run):
        command = commands.add_parser(name, help=COMMANDS[name], description=COMMANDS[name])
        command.set_defaults(run=run)
        return command

    add("list", list_steps)
    for name, run in (("run", run_command), ("check", check_command), ("stats", stats_command)):
        command = add(name, run)
        if name == "check":
            command.add_argument("--only", default="", metavar="CHECK", help="for example coverage")
        command.add_argument(
            "steps",
            nargs="?",
            metavar="N | N-M",
            help="for example 14, 54 (all its parts), 54a or 54a-55; all by default",
        )
    command = add("diff", diff_command)
    command.add_argument("step", metavar="N")
    command.add_argument("--demo", action="store_true", help="show the demo's difference too")
    command.add_argument("--html", action="store_true", help="print HTML instead of text")
    command = add("history", history_command)
    command.add_argument("name", metavar="NAME", help="for example Variable.backward")
    command.add_argument("--at", metavar="N", help="show the form that step N has")
    add("where", where_command).add_argument("name", metavar="NAME")
    command = add("propagate", propagate_command)
    command.add_argument("step", metavar="N")
    command.add_argument(
        "--from", dest="revision", default="HEAD", metavar="REV", help="what to compare with (HEAD)"
    )
    command = add("move", move_command)
    command.add_argument("names", nargs="+", metavar="OLD NEW", help="for example 54b 54c 54c 54d")
    return parser


def list_steps(curriculum: Curriculum, options) -> int:
    for stage in curriculum.stages:
        written = any(step.number in stage for step in curriculum.steps)
        title = f"stage {stage.number}  {stage.title}" + ("" if written else "  (to come)")
        print(paint(title, "bold"))
        for step in curriculum.steps:
            if step.number in stage:
                fault = fault_of(step)
                kind = "" if step.kind == "lesson" or fault else paint(f"  ({step.kind})", "faint")
                print(f"  {step.number!s:3} {fault or step.title}{kind}")
                for module in curriculum.modules:
                    if module.finished == step.number:
                        print(paint(f"      -> {module.name}", "faint"))
        print()
    return 0


def run_command(curriculum: Curriculum, options) -> int:
    steps = curriculum.select(options.steps)
    live = enabled()
    outcomes = run_steps(steps, curriculum.root)
    broken = []
    for stage in curriculum.stages:
        chosen = [step for step in steps if step.number in stage]
        if not chosen:
            continue
        done, seconds, kept = [], 0.0, 0
        for step in chosen:
            if live:
                line = _bar(stage, chosen, len(done), f"{step.label} ...")
                print("\r" + line, end="", flush=True)
            outcome = next(outcomes)
            done.append(outcome)
            seconds, kept = seconds + outcome.seconds, kept + outcome.kept
        bad = [outcome for outcome in done if not outcome.ok]
        broken += bad
        count = f"{len(done)} step{'s' if len(done) > 1 else ''}, {kept} promises kept"
        if bad:
            count += ", not " + ", ".join(str(each.step.number) for each in bad)
        style = ["red"] if bad else []
        line = _bar(stage, chosen, len(done), f"{count:34}{seconds:6.1f} s", *style)
        print(("\r" if live else "") + line + ("\033[K" if live else ""), flush=True)
    for outcome in broken:
        print("\n" + outcome.report())
    return 1 if broken else 0


def _bar(stage, chosen, done, text, *styles):
    """One line; where the terminal is narrow the bar goes, since a line that wraps stays there."""
    filled = 10 * done // len(chosen)
    bar = paint("#" * filled, "green") + "-" * (10 - filled) + "  "
    head = f" stage {stage.number:<2} "
    rest = f"{chosen[0].number}-{chosen[-1].number}".ljust(8)
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
    difference = Difference(curriculum, curriculum.step(options.step))
    print(difference.html() if options.html else difference.text(demo=options.demo))
    return 0


def history_command(curriculum: Curriculum, options) -> int:
    _tell_faults(curriculum)
    history = History(curriculum, options.name)
    print(history.text() if options.at is None else history.at(options.at))
    return 0


def _tell_faults(curriculum):
    for fault in curriculum.faults:
        print(f"left out: {fault}", file=sys.stderr)


def where_command(curriculum: Curriculum, options) -> int:
    _tell_faults(curriculum)
    print(History(curriculum, options.name).where())
    return 0


def propagate_command(curriculum: Curriculum, options) -> int:
    files = 0
    for result in propagate(curriculum, options.step, options.revision):
        if isinstance(result, Stopped):
            print(f"{result.file}: {result.name} is written anew there; nothing was written to it.")
            print(result.advice)
            return 1
        files += 1
        print(f"{result.file}: {', '.join(result.names)}")
    print(f"carried into {files} file{'s' if files != 1 else ''}")
    return 0


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
