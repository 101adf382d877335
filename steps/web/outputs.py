"""What a step prints: a run of a main step, kept by the content of its file; of a step in depth,
what it promises."""

from __future__ import annotations

import json

from ..companion.curriculum import Step
from ..companion.drawing import picture
from ..companion.lookup import text_of
from ..companion.promises import PromiseError, promises_of, run_step
from .project import ROOT, cached, package_digest


class BrokenStep(Exception):
    """A main step does not print what it says."""


def run(step: Step) -> str:
    """The output of a step.

    Raises:
        BrokenStep: a promise is broken. A step that was only slow is accepted.
    """

    def fresh() -> str:
        outcome = run_step(step, ROOT)
        if outcome.broken or not outcome.output:
            raise BrokenStep(outcome.report())
        return json.dumps(outcome.output)

    text = text_of(step)
    package = package_digest() if "tinytorch" in text else ""
    return json.loads(cached("outputs", (text, package), fresh))


def promised(step: Step) -> str:
    """The lines that a step promises to print."""
    try:
        found = promises_of(step.source)
    except PromiseError:
        return ""
    return "\n".join(text for each in found for _, text in each.lines)


def pictures(output: str) -> list[str]:
    """A drawing for each graph in Graphviz's language that a step printed."""
    found, at = [], output.find("digraph")
    while at >= 0:
        end = output.find("\n}", at) + 2
        if end < 2:
            break
        found.append(picture(output[at:end])._repr_html_())
        at = output.find("digraph", end)
    return found
