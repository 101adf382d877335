"""Each kind of broken promise is found, and whatever is right is left in peace."""

import pytest

from steps.companion import checks
from steps.companion.added import added_lines
from steps.companion.curriculum import CurriculumError
from steps.companion.gradient_checks import gradient_result

from .conftest import STAGE, step_text


def complaints(check, *arguments):
    return [str(each) for each in check(*arguments)]


def lines(count, start=0):
    return "\n".join(f"name{n} = {n}" for n in range(start, start + count))


# Form


def test_a_good_step_gives_no_complaint(make):
    curriculum = make({1: step_text(1, "x = 1"), 2: step_text(2, "x = 1\ny = 2")})
    for step in curriculum.steps:
        for check in checks.STEP_CHECKS.values():
            assert complaints(check, curriculum, step) == []
    for check in checks.WHOLE_CHECKS.values():
        assert complaints(check, curriculum) == []


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("Step 02: ", "Step 03: ", "the title is not `Step 02: Title`"),
        ("Try: ", "Attempt: ", "no line `Try"),
        ("Changed: ", "Altered: ", "no line `Changed"),
        ("Words.", "Words.\n" * 40, "the docstring has 46 lines (stay under 40)"),
        ("x = 1", "x = 1  # " + "long " * 20, "at most 100 are allowed"),
        ('if __name__ == "__main__":', "if True:", "has no demo"),
        ("x = 1", "x = 1\n" * 1201, "1201 lines of code above the demo; at most 1200"),
    ],
)
def test_form(make, old, new, found):
    text = step_text(2, "x = 1")
    assert old in text
    curriculum = make({2: text.replace(old, new)})
    assert found in "\n".join(complaints(checks.check_form, curriculum, curriculum.step(2)))


def test_a_step_without_promises(make):
    curriculum = make({1: step_text(1, demo="print(1)")})
    [complaint] = complaints(checks.check_promises, curriculum, curriculum.step(1))
    assert complaint.startswith("step 01: promises nothing")


def test_a_broken_promise(make):
    curriculum = make({1: step_text(1, demo="print(1)  # -> 2")})
    [complaint] = complaints(checks.check_promises, curriculum, curriculum.step(1))
    assert complaint == "step 01, line 11: printed '1', promised '2'"


def test_a_step_that_is_no_python(make):
    curriculum = make({1: step_text(1), 2: "x = ("})
    for name, _, found in checks.check_all(curriculum, [curriculum.step(2)]):
        assert "was never closed" in str(found[0]), name


# Difference


@pytest.mark.parametrize(("kind", "budget"), [("lesson", 50), ("catalogue", 150)])
def test_budget(make, kind, budget):
    toml = "" if kind == "lesson" else f"{kind}s = [2]\n"
    first = step_text(1, "x = 1")
    good = make({1: first, 2: step_text(2, "x = 1\n" + lines(budget))}, toml=toml)
    assert complaints(checks.check_difference, good, good.step(2)) == []
    bad = make({2: step_text(2, "x = 1\n" + lines(budget + 1))}, toml=toml)
    [complaint] = complaints(checks.check_difference, bad, bad.step(2))
    assert f"adds {budget + 1} lines" in complaint


def test_a_budget_of_its_own_needs_a_reason(make):
    files = {1: step_text(1, "x = 1"), 2: step_text(2, "x = 1\n" + lines(60))}
    reasoned = make(files, toml='[step.02]\nbudget = 60\nwhy = "one idea"\n')
    assert complaints(checks.check_difference, reasoned, reasoned.step(2)) == []
    assert complaints(checks.check_kind, reasoned, reasoned.step(2)) == []
    silent = make(files, toml="[step.02]\nbudget = 60\n")
    [complaint] = complaints(checks.check_difference, silent, silent.step(2))
    assert "says no `why`" in complaint
    long = make(files, toml='[step.02]\nbudget = 61\nwhy = "long"\n')
    [complaint] = complaints(checks.check_kind, long, long.step(2))
    assert complaint.endswith("a budget of 61 (at most 60 for a lesson)")


def test_words_do_not_count(make):
    words = (
        'def f():\n    """Words.\n' + "\n    more" * 100 + '\n    """\n\n\n    # c\n    return 1'
    )
    curriculum = make({1: step_text(1, "x = 1"), 2: step_text(2, "x = 1\n\n\n" + words)})
    assert len(added_lines(curriculum, curriculum.step(2))) == 2


def test_a_step_that_changes_only_words(make):
    curriculum = make({1: step_text(1, "x = 1"), 2: step_text(2, "x = 1  # one")})
    [complaint] = complaints(checks.check_difference, curriculum, curriculum.step(2))
    assert "changes no line of code" in complaint


def test_undeclared_removals(make):
    box = "class Box:\n    def a(self): ...\n\n    def b(self): ..."
    steps = {1: step_text(1, box + "\n\n\nx = 1"), 2: step_text(2, box.rpartition("\n\n")[0])}
    curriculum = make(steps)
    found = complaints(checks.check_difference, curriculum, curriculum.step(2))
    assert [each.partition(" of ")[0] for each in found] == [
        "step 02: drops Box.b",
        "step 02: drops x",
    ]
    declared = '[step.02]\nremoves = ["Box.b", "x"]\nwhy = "enough"\n'
    curriculum = make(steps, toml=declared)
    assert complaints(checks.check_difference, curriculum, curriculum.step(2)) == []


def test_a_class_that_is_renamed_takes_its_methods_along(make):
    old = "class Variable:\n    def a(self): ...\n\n    def b(self): ..."
    new = "class Tensor:\n    def a(self): ..."
    toml = '[step.2]\nrenames = {Variable = "Tensor"}\nwhy = "its name"\n'
    curriculum = make({1: step_text(1, old), 2: step_text(2, new)}, toml=toml)
    [complaint] = complaints(checks.check_difference, curriculum, curriculum.step(2))
    assert "renames Variable and drops Variable.b in silence" in complaint


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        ('removes = ["y"]\nwhy = "w"', "step 01 has no y"),
        ('removes = ["x"]\nwhy = "w"', "step 02 still has x"),
        ('renames = {x = "z"}\nwhy = "w"', "step 02 has no z"),
        ('removes = ["gone"]', "says no `why`"),
        ('unrun = ["x"]', "says no `why`"),
        ('unrun = ["y"]\nwhy = "w"', "step 02 has no y"),
    ],
)
def test_false_declarations(make, entry, found):
    steps = {1: step_text(1, "x = 1\ngone = 1"), 2: step_text(2, "x = 2")}
    curriculum = make(steps, toml=f"[step.2]\n{entry}\n")
    result = complaints(checks.check_difference, curriculum, curriculum.step(2))
    assert found in "\n".join(result)


def test_another_order(make):
    curriculum = make({1: step_text(1, "x = 1\ny = 2"), 2: step_text(2, "y = 2\nx = 1")})
    [complaint] = complaints(checks.check_difference, curriculum, curriculum.step(2))
    assert "y has another place than in step 01" in complaint


def test_what_moved_into_a_finished_module_is_no_removal(make):
    steps = {1: step_text(1, lines(80)), 2: step_text(2, "from tinytorch.a import name1\nx = 1")}
    toml = '[modules]\n"tinytorch/a.py" = [1]\n'
    curriculum = make(steps, toml=toml)
    assert complaints(checks.check_difference, curriculum, curriculum.step(2)) == []
    unfinished = make(steps, toml='[modules]\n"tinytorch/a.py" = [1, 2]\n')
    assert len(complaints(checks.check_difference, unfinished, unfinished.step(2))) == 80


def test_what_a_step_takes_up_again_is_no_addition(make):
    steps = {
        1: step_text(1, "def f():\n" + "\n".join(f"    print({n})" for n in range(70))),
        2: step_text(2, "x = 1"),
    }
    steps[3] = steps[1].replace("Step 01", "Step 03").replace("print(5)", "print(-5)")
    toml = '[step.2]\nremoves = ["f"]\nwhy = "w"\n[step.3]\nremoves = ["x"]\nwhy = "w"\n'
    module = '[modules]\n"tinytorch/a.py" = [1, 3]\n'
    curriculum = make(steps, toml=module + toml)
    assert complaints(checks.check_difference, curriculum, curriculum.step(3)) == []
    assert list(added_lines(curriculum, curriculum.step(3)).values()) == ["    print(-5)"]
    unrelated = make(steps, toml=toml)
    assert len(complaints(checks.check_difference, unrelated, unrelated.step(3))) == 1


# Kinds


def test_a_catalogue_says_so_in_its_title(make):
    steps = {1: step_text(1, title="Catalogue: the rest"), 2: step_text(2, title="A lesson")}
    right = make(steps, toml="catalogues = [1]\n")
    assert [complaints(checks.check_kind, right, step) for step in right.steps] == [[], []]
    wrong = make(steps, toml="catalogues = [2]\n")
    found = [complaints(checks.check_kind, wrong, step) for step in wrong.steps]
    assert [each.partition(" (")[0] for [each] in found] == [
        "step 01, line 1: is a lesson",
        "step 02, line 1: is a catalogue",
    ]


def test_only_a_lesson_has_a_budget_of_its_own(make):
    toml = 'catalogues = [1]\n[step.1]\nbudget = 9\nwhy = "w"\n'
    curriculum = make({1: step_text(1, title="Catalogue: more")}, toml=toml)
    [complaint] = complaints(checks.check_kind, curriculum, curriculum.step(1))
    assert "a catalogue has 150 lines" in complaint


def test_one_step_in_five_may_be_a_catalogue(make):
    steps = {n: step_text(n) for n in range(1, 12)}
    assert complaints(checks.check_kinds, make(steps, toml="catalogues = [1, 2]\n")) == []
    assert complaints(checks.check_kinds, make(steps, toml="catalogues = [1, 2, 3]\n")) == [
        "curriculum.toml, catalogues: 3 of 11 steps are catalogues (at most one in five is allowed)"
    ]


def test_what_curriculum_toml_names_is_there(make):
    toml = 'catalogues = [2]\n[step.3]\ngradcheck = ["x"]\n'
    toml += '[modules]\n"tinytorch/a.py" = [1, 4]\n'
    found = complaints(checks.check_kinds, make({1: step_text(1)}, toml=toml))
    assert found == [
        f"curriculum.toml, {name}: there is no step {number} (take it out)"
        for name, number in (
            ("catalogues", "02"),
            ("[step]", "03"),
            ("tinytorch/a.py", "04"),
        )
    ]


# Imports


@pytest.mark.parametrize(
    ("framework", "found"),
    [
        ("import math\nimport numpy as np\nfrom tinytorch.a import f", None),
        ("import torch", "only NumPy and tinytorch are there"),
        ("import matplotlib.pyplot", "only a demo may"),
        ("from tinytorch.b import g", "which step 03 finishes"),
        ("from tinytorch import b", "which step 03 finishes"),
        ("from tinytorch import f", "is not listed under [modules]"),
        ("def f():\n    from tinytorch.b import g", "which step 03 finishes"),
    ],
)
def test_imports(make, framework, found):
    toml = '[modules]\n"tinytorch/a.py" = [1, 2]\n"tinytorch/b.py" = [3]\n'
    curriculum = make({3: step_text(3, framework)}, toml=toml)
    result = complaints(checks.check_imports, curriculum, curriculum.step(3))
    assert result == [] if found is None else found in "\n".join(result)


def test_a_demo_may_draw(make):
    curriculum = make({1: step_text(1, demo="import matplotlib.pyplot\nprint(1)  # -> 1")})
    assert complaints(checks.check_imports, curriculum, curriculum.step(1)) == []


# The package

MODULE = {"toml": '[modules]\n"tinytorch/a.py" = [1, 2]\n'}
TAUGHT = "# Two.\n@cache\ndef f():\n    return 2  # two"


def module_complaints(make, text, **steps):
    numbered = {1: step_text(1, "def f():\n    return 1\n\n\nx = 1"), 2: step_text(2, TAUGHT)}
    curriculum = make(numbered, {"tinytorch/a.py": text}, **MODULE)
    return complaints(checks.check_modules, curriculum)


def test_a_module_repeats_the_last_step_that_has_the_definition(make):
    text = f'"""Words."""\n\nimport math\n\n__all__ = ["f"]\n\n{TAUGHT}\n\n\nx = 1\n'
    assert module_complaints(make, text) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            TAUGHT.replace("# Two.", "# 2."),
            "line 1: f is not what step 02 teaches, line 10: '# 2.'",
        ),
        (TAUGHT.replace("# Two.\n", ""), "f is not what step 02 teaches"),
        (TAUGHT.replace("@cache\n", ""), "f is not what step 02 teaches"),
        (TAUGHT.replace("  # two", ""), "'return 2' instead of 'return 2  # two'"),
        ("def f():\n    return 1", "f is not what step 02 teaches"),
        (TAUGHT + "\n\n\ny = 1", "y is not in any step that builds the module (01, 02)"),
        (TAUGHT + "\n\n\nprint(1)", "is neither import nor definition: print(1)"),
    ],
)
def test_a_module_that_differs(make, text, found):
    [complaint] = module_complaints(make, text)
    assert complaint.startswith("tinytorch/a.py, line") and found in complaint


def test_files_that_no_step_builds(make):
    files = {"tinytorch/b.py": "x = 1", "tinytorch/__init__.py": "from tinytorch.b import x\ny = 1"}
    curriculum = make({1: step_text(1)}, files)
    assert complaints(checks.check_modules, curriculum) == [
        "tinytorch/__init__.py, line 2: holds more than imports and __all__: y = 1 "
        "(an __init__.py only re-exports; a __getattr__ may import on demand)",
        "tinytorch/b.py: no step builds it (name its steps under [modules])",
    ]


def test_a_finished_module_that_is_missing(make):
    curriculum = make({1: step_text(1)}, toml='[modules]\n"tinytorch/a.py" = [1]\n')
    assert complaints(checks.check_modules, curriculum) == [
        "tinytorch/a.py: is missing; step 01 finishes it"
    ]


def test_a_cycle(make):
    files = {
        "tinytorch/a.py": "from tinytorch.b import x",
        "tinytorch/b.py": "from . import c",
        "tinytorch/c.py": "import tinytorch.a",
        "tinytorch/d.py": "from tinytorch.a import x",
    }
    [complaint] = complaints(checks.check_package_imports, make(files=files))
    assert complaint.startswith(
        "tinytorch/a.py, line 1: imports in a circle: "
        "tinytorch.a -> tinytorch.b -> tinytorch.c -> tinytorch.a"
    )


def test_type_checking_makes_no_cycle(make):
    files = {
        "tinytorch/a.py": "from tinytorch.b import x",
        "tinytorch/b.py": "if TYPE_CHECKING:\n    from tinytorch.a import y",
    }
    assert complaints(checks.check_package_imports, make(files=files)) == []


def test_imports_inside_functions(make):
    text = "def f():\n    import cupy\n\n    from tinytorch.b import x\n"
    [complaint] = complaints(checks.check_package_imports, make(files={"tinytorch/a.py": text}))
    assert complaint == "tinytorch/a.py, line 4: imports tinytorch.b inside a function"


def test_a_module_imports_what_is_finished_with_it(make):
    toml = '[modules]\n"tinytorch/a.py" = [1]\n"tinytorch/b.py" = [2, 3]\n'
    files = {"tinytorch/a.py": "from tinytorch.b import x", "tinytorch/b.py": "import math"}
    [complaint] = complaints(checks.check_order, make(files=files, toml=toml))
    assert complaint.startswith(
        "tinytorch/a.py, line 1: imports tinytorch.b, which step 03 finishes, and is itself "
        "finished by step 01"
    )
    together = toml.replace("[1]", "[2]")  # step 2 has both under construction
    assert complaints(checks.check_order, make(files=files, toml=together)) == []
    files["tinytorch/a.py"] = "if TYPE_CHECKING:\n    from tinytorch.b import x"
    assert complaints(checks.check_order, make(files=files, toml=toml)) == []


# The numbers


def test_there_is_room_beyond_step_99(make):
    stages = STAGE.replace("last = 20", "last = 100")
    curriculum = make({n: step_text(n) for n in range(1, 101)}, stages=stages)
    assert complaints(checks.check_numbers, curriculum) == []
    assert [step.label for step in curriculum.steps[-2:]] == ["step 99", "step 100"]
    assert complaints(checks.check_form, curriculum, curriculum.step(100)) == []


def test_parts_and_strangers(make):
    """A number may be missing, a part may not."""
    names = ["1", "4a", "4b", "6a", "6c", "7", "7a", "30"]
    curriculum = make({name: step_text(name) for name in names}, {"steps/step_old.py": ""})
    assert complaints(checks.check_numbers, curriculum) == [
        "steps: the parts of 6 are 6a, 6c (write a, b, c, ...)",
        "steps: the parts of 7 are 7, 7a (write a, b, c, ...)",
        "step 30: is in no stage (add the stage to curriculum.toml)",
        "steps/step_old.py: is not named stepNN.py or stepNNa.py",
    ]


def test_parts_build_a_module_and_are_compared_in_order(make):
    forms = {"1": "x = 1", "2a": "x = 2", "2b": "x = 3", "3": "from tinytorch.a import x\n\ny = 1"}
    curriculum = make(
        {name: step_text(name, form) for name, form in forms.items()},
        {"tinytorch/a.py": "x = 3\n"},
        '[modules]\n"tinytorch/a.py" = ["2a", "2b"]\n[step.2b]\ngradcheck = ["x"]\n',
    )
    assert complaints(checks.check_modules, curriculum) == []
    assert complaints(checks.check_difference, curriculum, curriculum.step(3)) == []


@pytest.mark.parametrize(
    ("toml", "found"),
    [
        ("catalogs = [1]\n", "'catalogs' means nothing here. Did you mean catalogues"),
        (
            '[step.1]\nremove = ["x"]\n',
            "'remove' means nothing here. Did you mean removes or renames?",
        ),
        ('[step.1]\nremoves = "x"\n', "removes is not a list"),
        ("[step.one]\n", "'one' does not name a step"),
        ("[step.50]\n", "step 50 is in no stage"),
        ('[modules]\n"torch/a.py" = [1]\n', "is not a module"),
        ('[modules]\n"tinytorch/a.py" = [2, 1]\n', "in rising order"),
        ("x = \n", "Invalid value"),
    ],
)
def test_a_wrong_curriculum(make, toml, found):
    with pytest.raises(CurriculumError) as error:
        make(toml=toml)
    assert found in str(error.value)


def test_stages_follow_each_other(make):
    with pytest.raises(CurriculumError, match="stage 2 must begin at step 21"):
        make(stages=STAGE + STAGE.replace("number = 1", "number = 2"))


# Gradients

FRAMEWORK = """
import numpy as np


class Variable:
    def __init__(self, data):
        self.data = data
        self.grad = None
        self.creator = None

    def backward(self):
        if self.grad is None:
            self.grad = np.ones_like(self.data)
        self.creator.input.grad = self.creator.backward(self.grad)


class Square:
    def __call__(self, x):
        y = Variable(self.forward(x.data))
        y.creator, self.input = self, x
        return y

    def forward(self, x):
        return x**2

    def backward(self, gy):
        return 2 * self.input.data * gy
"""


def test_gradients_by_backward_and_by_hand(make):
    by_hand = FRAMEWORK.replace("def backward(self):", "def not_yet(self):")
    curriculum = make({6: step_text(6, by_hand), 7: step_text(7, FRAMEWORK)})
    for step in curriculum.steps:
        assert gradient_result(step) == {"checked": ["Square"], "once": [], "wrong": {}}


@pytest.mark.parametrize("wrong", ["3 * self.input.data * gy", "2 * self.input.data", "gy[0]"])
def test_a_wrong_derivative_is_caught(make, wrong):
    text = FRAMEWORK.replace("2 * self.input.data * gy", wrong)
    curriculum = make({7: step_text(7, text)})
    [complaint] = complaints(checks.check_gradients, curriculum, curriculum.step(7))
    assert "the derivative of Square is wrong" in complaint


def test_what_the_framework_refuses_is_left_out(make):
    text = (
        FRAMEWORK
        + """

class Exp(Square):
    def backward(self, gy):
        raise NotImplementedError
"""
    )
    curriculum = make({7: step_text(7, text)})
    assert gradient_result(curriculum.step(7)) == {"checked": ["Square"], "once": [], "wrong": {}}


def test_a_framework_in_which_nothing_can_be_checked(make):
    curriculum = make({7: step_text(7, "class Variable: ...")})
    [complaint] = complaints(checks.check_gradients, curriculum, curriculum.step(7))
    assert "found no operation" in complaint


def test_a_framework_that_does_not_load(make):
    curriculum = make({7: step_text(7, "class Tensor: ...\n\n\n1 / 0")})
    [complaint] = complaints(checks.check_gradients, curriculum, curriculum.step(7))
    assert "ZeroDivisionError" in complaint


def test_a_rule_that_nothing_checks(make):
    text = "class Relu:\n    def backward(ctx, gy): ..."
    curriculum = make({45: step_text(45, text)})
    [complaint] = complaints(checks.check_gradients, curriculum, curriculum.step(45))
    assert complaint.startswith("step 45, line 11: nothing checks Relu.backward")
