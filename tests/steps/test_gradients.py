"""The gradient checks of the companion: they pass right frameworks and catch wrong ones."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from steps.companion.processes import one_thread

ROOT = Path(__file__).parents[2]
STAGE_5 = ["31a", "31b", "31c", "31d", "32a", "32b", "32c", "32d", "32e", "33", "34"]
NAMES = {"exp", "sin", "cos", "tanh", "log", "neg", "add", "sub", "mul", "div", "-x", "x ** 3"}
NAMES |= {"x + y", "x - y", "x * y", "x / y", "2.0 - x", "2.0 / x"}


def result_of(path, *expressions):
    command = [sys.executable, str(ROOT / "steps/companion/gradients.py"), str(path), *expressions]
    done = subprocess.run(
        command, capture_output=True, text=True, env=one_thread(), timeout=120, check=True
    )
    return json.loads(done.stdout)


def changed(tmp_path, number, *replacements):
    """A copy of a step in which each text is replaced by another one."""
    text = (ROOT / f"steps/step{number}.py").read_text(encoding="utf-8")
    for old, new in replacements:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    path = tmp_path / f"step{number}.py"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("number", STAGE_5)
def test_every_framework_of_stage_5_is_checked_and_right(number):
    result = result_of(ROOT / f"steps/step{number}.py")
    assert set(result["checked"]) == NAMES
    assert result["wrong"] == {}
    assert result["once"] == []


def test_a_wrong_formula_is_found(tmp_path):
    path = changed(tmp_path, "34", ("return g * b, g * a", "return g * a, g * b"))
    wrong = result_of(path)["wrong"]
    first = {name for name, why in wrong.items() if why.startswith("gradient")}
    assert first == {"mul", "x * y"}
    assert wrong["sin"].startswith("second derivative")  # its backward multiplies


def test_a_gradient_of_another_shape_is_found(tmp_path):
    path = changed(tmp_path, "34", ("return -g\n", "return -g[0]\n"))
    assert "shape (4,), the input (3, 4)" in result_of(path)["wrong"]["neg"]


def test_a_second_derivative_that_is_cut_off_is_found(tmp_path):
    role = "roles.append(~0 if role is None and value is output else role)"
    path = changed(tmp_path, "34", (role, "roles.append(None if value is output else role)"))
    wrong = result_of(path)["wrong"]
    assert set(wrong) == {"exp", "tanh"}
    assert wrong["exp"].startswith("second derivative: gradient 0")


def test_a_formula_that_fails_on_tensors_is_found(tmp_path):
    path = changed(tmp_path, "34", ("return g * ctx.xp.cos(x)", "return g * np.cos(x)"))
    assert result_of(path)["wrong"].keys() == {"sin"}


def test_a_formula_that_needs_more_than_tensor_has_is_right_once(tmp_path):
    longer = "return g * ctx.xp.sqrt(1 - ctx.xp.sin(x) ** 2)"  # the inputs are below pi / 2
    path = changed(tmp_path, "34", ("return g * ctx.xp.cos(x)", longer))
    result = result_of(path)
    assert result["once"] == ["sin"]
    assert result["wrong"] == {}


def test_an_expression_is_checked_on_the_steps_own_framework(tmp_path):
    path = changed(tmp_path, "34", ("return g / x\n", "return g * x\n"))
    result = result_of(path, "(x * y).exp() / y", "x.log() * y")
    assert result["wrong"].keys() == {"log", "x.log() * y"}
    assert "(x * y).exp() / y" in result["checked"]


def test_an_operation_that_raises_is_a_finding(tmp_path):
    path = changed(tmp_path, "34", ("return Exp.apply(x)", "return Exp.apply(x, x)"))
    assert result_of(path)["wrong"]["exp"].startswith("TypeError")


def test_what_is_not_there_yet_is_not_checked(tmp_path):
    path = changed(tmp_path, "34", ("return g / x\n", "raise NotImplementedError\n"))
    result = result_of(path)
    assert set(result["checked"]) == NAMES - {"log"}
    assert result["wrong"] == {}
