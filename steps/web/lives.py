"""A definition on a page: its forms in the steps, and where it lives."""

from __future__ import annotations

from html import escape

from ..companion.curriculum import Step
from ..companion.history import Form, History, Life, name_in
from ..companion.hunks import Line, hunks, trimmed
from ..companion.lookup import find
from ..companion.source import Definition
from .code import Painter, block, folded
from .project import addresses, cached, curriculum, link, steps_digest


def lives_html(name: str, docname: str) -> str:
    """Every form, each with its difference folded."""
    return cached("definitions", (name, docname, steps_digest()), lambda: _made(name, docname))


def _made(name, docname):
    lives = History(curriculum(), name).lives
    return "".join(_life(each, docname, name, first=each is lives[0]) for each in lives)


def _life(life: Life, docname: str, name: str, first: bool) -> str:
    parts = [] if first else [f"<h2>Another {escape(name)}</h2>"]
    if life.home:
        module, definition = life.home
        place = f"{module.name}:{definition.first}"
        parts.append(f"<p>In the package: <code>{escape(place)}</code>.</p>")
    elif life.last:
        where = _linked(life.last[0], docname)
        parts.append(f"<p>Not in the package; the last step that has it: {where}.</p>")
    run = None
    for form in life.forms:
        if form.step.run and form.step.run is not run:
            run = form.step.run
            parts.append(f"<h3>In depth, {run.name}: {escape(run.title)}</h3>")
        parts.append(_form(form, docname, name))
    return "".join(parts)


def _form(form: Form, docname: str, name: str) -> str:
    size = escape(form.size).replace("-", "\N{MINUS SIGN}") if not form.start else form.size
    called = form.definition.name if form.definition else name
    note = f" <small>as {escape(called)}</small>" if called != name else ""
    head = f'{_linked(form.step, docname)} <span class="size">{size}</span>{note}'
    if form.definition is None:
        return f'<p class="form">{head}</p>'
    new = form.definition
    old = None if form.start else _form_before(form, name)
    if old:
        found = hunks(trimmed(_numbered(old)), trimmed(_numbered(new)))
    else:
        found = [[Line(" ", *each) for each in _numbered(new)]]
    painter = Painter((old.first, old.text) if old else (1, ""), (new.first, new.text))
    return folded(head, block(found, painter)) if found else f'<p class="form">{head}</p>'


def _form_before(form, name) -> Definition | None:
    """The form in the step below that holds the definition."""
    for earlier in reversed(curriculum().chain(form.step)[:-1]):
        if held := find(earlier, name_in(curriculum(), name, earlier)):
            return held
    return None


def _numbered(definition):
    return list(enumerate(definition.text.splitlines(), definition.first))


def _linked(step: Step, docname: str) -> str:
    target = addresses().get(step.number)
    words = f"Step {step.number}"
    words = f'<a href="{link(docname, target)}">{words}</a>' if target else words
    return f"{words} {escape(step.title)}"
