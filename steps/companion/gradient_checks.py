"""The check of a step's derivatives; gradients.py does the work, in a process of its own."""

from __future__ import annotations

import json
import re
from pathlib import Path

from .complaint import Complaint
from .curriculum import Curriculum, Step
from .processes import run_script

TIMEOUT = 120  # seconds
FIRST_RULE = 6  # the first topic whose framework has derivatives

_GRADIENTS = Path(__file__).with_name("gradients.py")
_BACKWARD = re.compile(r"""def backward\b|\.backward = |["']backward["']""")


def check_gradients(curriculum: Curriculum, step: Step):
    """The framework passes the gradient checks that it can already pass."""
    result = gradient_result(step)
    if isinstance(result, str):
        yield Complaint(step.label, f"the gradient check failed: {result}")
        return
    for name, found in result["wrong"].items():
        yield Complaint(step.label, f"the derivative of {name} is wrong: {found}")
    if result["checked"]:
        return
    if boxes_of(step) and (step.run or step.number.topic >= FIRST_RULE):
        yield Complaint(step.label, "the gradient check found no operation that it knows")
    for name, definition in step.source.definitions.items():
        if definition.owner and name.endswith(".backward"):
            yield Complaint(
                f"{step.label}, line {definition.first}",
                f"nothing checks {name}",
                f"list an expression under [step.{step.number}] gradcheck in curriculum.toml",
            )
            break


def boxes_of(step: Step) -> set[str]:
    """The step's own classes of what is differentiated.

    In Part II a Tensor may be there for its memory alone: without a backward it does not count.
    """
    own = {"Variable", "Tensor"} & step.source.top_level.keys()
    part_two = step.run is None and step.stage is not None and step.stage.number > 10
    return set() if part_two and not _BACKWARD.search(step.source.text) else own


def gradient_result(step: Step) -> dict | str:
    """What gradients.py prints for a step; the last lines of its error output when it fails.

    It is not started where it has nothing to check: no expression, and neither a box nor a backward
    pass that is the step's own.
    """
    if not step.gradcheck and not boxes_of(step) and not _BACKWARD.search(step.source.text):
        return {"checked": [], "once": [], "wrong": {}}
    arguments = [str(step.path), *step.gradcheck]
    status, output, errors = run_script(_GRADIENTS, arguments, Path.cwd(), TIMEOUT)
    if status is None:
        return f"stopped after {TIMEOUT} s"
    if status:
        return "\n".join(errors.strip().splitlines()[-4:])
    return json.loads(output.splitlines()[-1])
