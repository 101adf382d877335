"""Small curricula, made up in a folder of their own, on which the companion is tried."""

import textwrap

import pytest

from steps.companion.curriculum import Curriculum
from steps.companion.number import Number

STAGE = """
[[stage]]
number = 1
title = "A small stage"
first = 1
last = 20
"""


RUNS = """
[[run]]
name = "pool"
title = "Pooling"
beside = 2
stage = 1

[[run]]
name = "conv"
title = "Convolutions"
beside = 3
stage = 1
"""


def padded(number):
    """7 is 07 in the name of a step, "7a" is 07a."""
    return str(Number.parse(number))


def step_text(number, framework="", demo='print("one", 1.5)  # -> one 1.5', title="A title"):
    """A step that keeps every promise of form, with a framework and a demo of one's own."""
    parts = [
        f'"""Step {padded(number)}: {title}\n\nWords.\n\nChanged: a.\nTry: b.\n"""',
        textwrap.dedent(framework).strip(),
        'if __name__ == "__main__":\n' + textwrap.indent(textwrap.dedent(demo).strip(), "    "),
    ]
    return "\n\n\n".join(part for part in parts if part) + "\n"


@pytest.fixture
def make(tmp_path):
    """Writes steps ({number: text}), other files ({path: text}) and curriculum.toml."""

    def write(steps=None, files=None, toml="", stages=STAGE):
        (tmp_path / "steps").mkdir(exist_ok=True)
        for number, text in (steps or {}).items():
            path = tmp_path / "steps" / Number.parse(number).file
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        for name, text in (files or {}).items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text).lstrip("\n"))
        (tmp_path / "steps" / "curriculum.toml").write_text(toml + stages)
        return Curriculum(tmp_path)

    return write
