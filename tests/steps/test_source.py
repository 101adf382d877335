"""Taking a file apart: definitions, code lines, imports."""

from pathlib import Path

import pytest

from steps.companion.source import Source, SourceError

TEXT = '''"""Step 01: A file

Words.
"""

import numpy as np

# Above, but apart.

# The step of a difference.
EPS = 1e-4


# Squares.
@staticmethod
def square(x):
    """Squared."""
    # A comment.
    return x**2  # trailing


class Box:
    """Holds."""

    size: int = 3

    # How it starts.
    def __init__(self):
        self.text = """two
lines"""

    @property
    def grad(self):
        return 1

    @grad.setter
    def grad(self, value):
        pass


Box.__neg__ = square


if __name__ == "__main__":
    hidden = 1
'''


@pytest.fixture(scope="module")
def source():
    return Source(Path("step01.py"), TEXT)


def test_definitions_in_order(source):
    assert list(source.definitions) == [
        "EPS",
        "square",
        "Box",
        "Box.size",
        "Box.__init__",
        "Box.grad",
        "Box.grad (2)",
        "Box.__neg__",
    ]
    assert list(source.top_level) == ["EPS", "square", "Box", "Box.__neg__"]


def test_a_definition_has_its_decorators_and_the_comment_directly_above(source):
    assert source.definitions["square"].text.splitlines()[:3] == [
        "# Squares.",
        "@staticmethod",
        "def square(x):",
    ]
    assert source.definitions["EPS"].text == "# The step of a difference.\nEPS = 1e-4"
    assert source.definitions["Box.__init__"].text.startswith("    # How it starts.\n    def")
    assert source.definitions["Box.grad (2)"].text.startswith("    @grad.setter")


def test_the_shell_of_a_class_is_what_its_members_leave(source):
    assert [source.lines[n - 1] for n in source.shell("Box")] == ["class Box:", '    """Holds."""']
    assert source.shell("EPS") == [*source.definitions["EPS"].span]


def test_code_lines_leave_out_words(source):
    first = source.definitions["square"].first
    last = source.definitions["square"].last
    code = [text for number, text in source.code.items() if first <= number <= last]
    assert code == ["@staticmethod", "def square(x):", "    return x**2"]
    assert 'lines"""' in source.code.values(), "a string that is not a docstring is code"


def test_framework_and_demo(source):
    assert source.title == "Step 01: A file"
    assert source.demo[0].startswith("if __name__")
    assert "hidden" not in source.definitions
    assert source.others == []


def test_imports_with_absolute_names():
    text = (
        "from __future__ import annotations\nfrom . import engine\nfrom .grad import f, g\n"
        "from ..core.tensor import Tensor\nif TYPE_CHECKING:\n    import a.b\n"
        "def late():\n    import c\n"
    )
    found = Source(Path("x.py"), text, package="tinytorch.autograd").imports
    assert [(each.module, each.names) for each in found] == [
        ("__future__", ("annotations",)),
        ("tinytorch.autograd", ("engine",)),
        ("tinytorch.autograd.grad", ("f", "g")),
        ("tinytorch.core.tensor", ("Tensor",)),
        ("a.b", ()),
        ("c", ()),
    ]
    assert [each.type_checking for each in found] == [False] * 4 + [True, False]
    assert [each.in_function for each in found] == [False] * 5 + [True]


def test_statements_that_are_no_definitions():
    text = (
        '"""Words."""\n__all__ = ["x"]\ntry:\n    import cupy\nexcept ImportError:\n'
        "    cupy = None\nx = 1\nprint(x)\nfor y in x:\n    pass\n"
    )
    assert Source(Path("x.py"), text).others == [(8, "print(x)"), (9, "for y in x:")]


def test_a_file_that_is_no_python():
    with pytest.raises(SourceError, match="step03.py, line 2"):
        Source(Path("step03.py"), "x = 1\ny = (\n")
