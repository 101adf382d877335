"""The commands, their arguments, and the help that lists them."""

from __future__ import annotations

import argparse
import sys

PROGRAM = "python -m steps"
READING = {
    "list": "the steps of the main road by stages; of a stage, a run in depth, or all",
    "next": "show the step after the one shown last; it remembers your place",
    "show": "a step in one view: its text, its difference and what it prints",
    "practice": "write what a step writes yourself, in a file that its promises check",
    "diff": "what a step changes against the step before, or against another one",
    "run": "run steps and compare what they print with what they promise",
    "history": "each form that a definition had, and the steps that gave it",
    "where": "where a definition lives, the step that wrote it, and where it began",
    "find": "the steps whose title or text has a word",
}
WRITING = {
    "check": "check everything that the steps promise",
    "stats": "how much the steps of each stage add, change and run",
    "contract": "run the demos of the main road on the package, or on PyTorch, and compare",
    "propagate": "carry a change of a step into the later steps and the package",
    "move": "rename steps, and every reference to them",
    "readme": "write the tables of both roads, and the hours in README.md",
}
COMMANDS = READING | WRITING

HELP = """\
usage: python -m steps [COMMAND ...]

Alone it says where you are. To read:
{reading}

To write:
{writing}

A step is 14, 54b or step54b.py, and in depth conv07 or depth/conv07.py. Several are 11-18, 54 (all
its parts), 54a-55, conv (a whole run) or conv03-conv07.

    python -m steps next
    python -m steps show 14
    python -m steps diff 14 Variable.backward
    python -m steps run 11-18 -v
    python -m steps where Variable.backward

More about a command: python -m steps diff --help
"""

SEVERAL = "for example 14, 54 (all its parts), 54a-55, conv (a run in depth) or conv03-conv07"


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        print(f"{self.prog}: {message} (see {self.prog} --help)", file=sys.stderr)
        raise SystemExit(2)

    def format_help(self):
        if self.prog != PROGRAM:
            return super().format_help()
        lists = [
            "\n".join(f"  {name:10} {text}" for name, text in commands.items())
            for commands in (READING, WRITING)
        ]
        return HELP.format(reading=lists[0], writing=lists[1])


def parser_for(handlers) -> argparse.ArgumentParser:
    """The parser of the command line; `handlers` are the functions that do the work."""
    parser = _Parser(prog=PROGRAM)
    commands = parser.add_subparsers(required=True, metavar="command")

    def add(name):
        command = commands.add_parser(name, help=COMMANDS[name], description=COMMANDS[name])
        command.set_defaults(run=handlers[name])
        return command

    command = add("list")
    command.add_argument(
        "part", nargs="?", metavar="STAGE | RUN", help="for example 8, or conv; the main road"
    )
    command.add_argument("--all", action="store_true", help="both roads, with their modules")
    for name in ("run", "check", "stats"):
        command = add(name)
        if name == "check":
            command.add_argument(
                "--only",
                default="",
                metavar="CHECK",
                help="for example coverage; stable takes long, and runs only here",
            )
        default = "the main road" if name == "run" else "all"
        which = command.add_mutually_exclusive_group()
        which.add_argument(
            "steps", nargs="?", metavar="N | N-M", help=f"{SEVERAL}; {default} by default"
        )
        if name == "run":
            which.add_argument("--all", action="store_true", help="both roads")
            command.add_argument(
                "-v", "--verbose", action="store_true", help="show what they print"
            )
    command = add("show")
    command.add_argument(
        "steps", nargs="?", metavar="N | N-M", help=f"{SEVERAL}; the step shown last by default"
    )
    command = add("next")
    way = command.add_mutually_exclusive_group()
    way.add_argument("--at", metavar="N", help="go to this step and show it")
    way.add_argument("--back", action="store_true", help="go back one step and show it")
    command = add("practice")
    command.add_argument(
        "step", nargs="?", metavar="N", help="for example 14; the step shown last by default"
    )
    what = command.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="does your file keep the promises?")
    what.add_argument("--hint", action="store_true", help="one hint more each time")
    what.add_argument(
        "--solution", action="store_true", help="write the step's own file and compare yours"
    )
    what.add_argument(
        "--again", action="store_true", help="begin anew; the file that you had gets another name"
    )
    command = add("diff")
    command.add_argument("steps", metavar="N | N-M", help=SEVERAL)
    command.add_argument(
        "name", nargs="?", help="one definition only: Variable.backward; or another step: 16"
    )
    command.add_argument("--demo", action="store_true", help="show the demo's difference too")
    command.add_argument("--html", action="store_true", help="print HTML instead of text")
    command = add("history")
    command.add_argument("name", metavar="NAME", help="for example Variable.backward")
    command.add_argument("--at", metavar="N", help="show the form that step N has")
    add("where").add_argument("name", metavar="NAME")
    add("find").add_argument("words", nargs="+", metavar="WORD", help="for example momentum")
    add("readme")
    command = add("contract")
    command.add_argument("steps", nargs="?", metavar="N | N-M", help=f"{SEVERAL}; all by default")
    command.add_argument(
        "--on",
        default="tinytorch",
        choices=("tinytorch", "torch"),
        help="torch: do they run there?",
    )
    command = add("propagate")
    command.add_argument("step", nargs="?", metavar="N", help="the step that changed")
    command.add_argument(
        "--dry-run", action="store_true", help="write nothing; name the files and the stops"
    )
    command.add_argument("--continue", dest="go_on", action="store_true", help="go on after a stop")
    command.add_argument(
        "--from", dest="revision", default="HEAD", metavar="REV", help="what to compare with (HEAD)"
    )
    command = add("move")
    command.add_argument("names", nargs="+", metavar="OLD NEW", help="for example 54b 54c 54c 54d")
    return parser
