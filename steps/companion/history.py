"""The life of a definition: each form it had, the steps that gave it the form, and where it lives
now."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from .curriculum import Curriculum, CurriculumError, Module, Step, fault_of
from .hunks import count
from .lookup import fault_met, find, holder, names_of, passage
from .names import heir, nearest
from .number import Number
from .source import Definition, Source


@dataclass(frozen=True)
class Form:
    """A definition as a step left it. `definition` is None where the step took it away."""

    step: Step
    definition: Definition | None
    added: int = 0  # lines of code against the form before
    removed: int = 0
    start: str = ""  # "first", or "again" after a step that took it away

    @property
    def size(self) -> str:
        if self.definition is None:
            return "removed" + (f": {self.step.why}" if self.step.why else "")
        if self.start:
            return f"{self.start}, {self.added} line{'s' if self.added != 1 else ''}"
        counts = [f"{sign}{n}" for sign, n in (("+", self.added), ("-", self.removed)) if n]
        return " ".join(counts) or "words only"


@dataclass(frozen=True)
class Life:
    """What the steps made of one definition, and its place in the package, if it has come there."""

    home: tuple[Module, Definition] | None
    forms: list[Form]
    last: tuple[Step, Definition] | None  # the last step that holds it

    @property
    def steps(self) -> list[Number]:
        """The steps that gave it a form."""
        return [form.step.number for form in self.forms if form.definition is not None]


class History:
    """Every form of one name, through its renamings.

    Two modules may use one name for two things: `add` of tensors and the kernel `add`. Then each
    has a life of its own.
    """

    def __init__(self, curriculum: Curriculum, name: str):
        self.curriculum = curriculum
        self.name = name
        self.asked = name
        module = None
        if not _is_defined(curriculum, name):
            self.name, module = found_in_package(curriculum, name)
            if not self.name:  # "exp_" for "Tensor.exp_"
                self.name, module = found_in_package(curriculum, f"Tensor.{name}")
            if not self.name or not _is_defined(curriculum, self.name):
                raise CurriculumError(
                    f"{name!r} is not there yet: no step and no module defines it."
                    + _suggestion(name, curriculum)
                )
        self.lives = self._lives(module)

    @property
    def faults(self) -> list[str]:
        """A line for each file that cannot be read where it defines the name."""
        files = [*self.curriculum.steps, *self.curriculum.built_modules]
        return [fault for each in files if (fault := fault_met(each))]

    def text(self) -> str:
        """Each form, a line for each step that gave it one."""
        found = [self._forms_of(life, first=life is self.lives[0]) for life in self.lives]
        if shown := self.lives[0].steps:
            example = shown[len(shown) // 2]
            found[-1] += f"\nshow one with: python -m steps history {self.name} --at {example}"
        return "\n".join(found)

    def _forms_of(self, life: Life, first: bool) -> str:
        count = len(life.steps)
        found = [f"{self._called(first)}   {count} form{'s' if count != 1 else ''}"]
        width = max((len(form.step.title) for form in life.forms), default=0)
        called, run = self.name, None
        for form in life.forms:
            note = ""
            if form.step.run and form.step.run is not run:
                run = form.step.run
                found.append(f"  in depth, {run.name}: {run.title}")
            if form.definition is not None and form.definition.name != called:
                called = form.definition.name
                note = f"  (as {called})"
            number = form.step.number
            found.append(f"  {number!s:3} {form.step.title:{width}}  {form.size}{note}")
        if life.home:
            module, definition = life.home
            note = f"  (as {definition.name})" if definition.name != called else ""
            found.append(f"  {module.finished!s:3} -> {module.name}:{definition.first}{note}")
        return "\n".join(found)

    def at(self, number: object) -> str:
        """The source of the form that a step has."""
        step = self.curriculum.step(number)
        name = name_in(self.curriculum, self.name, step)
        definition = find(step, name)
        if definition is None:
            having = ", ".join(str(each) for life in self.lives for each in life.steps)
            raise CurriculumError(
                f"Step {step.number.short} has no {self.name}. Its forms are in {having}."
            )
        head = f"{name}, {step.file}, lines {definition.first}-{definition.last}"
        return f"{head}\n\n{definition.text}"

    def where(self) -> str:
        """The file and line where it lives, the step that wrote it so, and the first step of the
        main road that has it."""
        found = []
        for life in self.lives:
            found.append(self._called(first=life is self.lives[0]))
            if life.home:
                module, definition = life.home
                found.append(self._place("lives in", module.name, definition))
            written = [form for form in life.forms if form.definition]
            road = [form for form in written if not form.step.run]
            if written:
                found.append(self._of_step("written by", written[-1].step, written[-1].definition))
            if road and road[0] is not written[-1]:
                found.append(self._of_step("began in", road[0].step, road[0].definition))
            if not life.home and life.last:
                found.append(self._of_step("last in", *life.last))
            if not life.home and life.forms and life.forms[-1].definition is None:
                found.append(
                    f"  dropped by  {life.forms[-1].step.label}: {life.forms[-1].step.why}"
                )
        return "\n".join(found)

    def _of_step(self, title, step, definition):
        return self._place(title, f"{step.label}, {step.file}", definition)

    def _place(self, title, file, definition):
        note = f"  (as {definition.name})" if definition.name != self.name else ""
        return f"  {title:10}  {file}:{definition.first}{note}"

    def _lives(self, asked: Module | None) -> list[Life]:
        """One for each module that holds the name today; only the one in `asked` where it is given.

        A step belongs to the module that it builds. The steps that build none of them are from the
        time before the package: they belong to the first.
        """
        homes = self._homes()
        builders = {number for module, _ in homes for number in module.builders}
        lives = []
        for home in homes or [None]:
            mine = set(home[0].builders) if home else set()
            first = not homes or home is homes[0]
            steps = [
                step
                for step in self.curriculum.steps
                if step.number in mine or first and step.number not in builders
            ]
            if asked is None or home is None or home[0] is asked:
                lives.append(Life(home, self._forms(steps), self._last_holder(steps)))
        return lives

    def _homes(self) -> list[tuple[Module, Definition]]:
        """The modules of the package that hold the definition today, the oldest first."""
        aliases = {name_in(self.curriculum, self.name, step) for step in self.curriculum.steps}
        found = []
        roads, modules = self.curriculum.roads, self.curriculum.built_modules
        for module in sorted(modules, key=lambda module: roads.key(module.finished)):
            held = filter(None, (find(module, each) for each in (self.name, *aliases)))
            found += [(module, definition) for definition in held][:1]
        if not found:  # "Variable.__add__", which became Tensor.__add__, is a method of add's today
            attached = [found_in_package(self.curriculum, each) for each in aliases]
            found = [(module, find(module, each)) for each, module in attached if each]
            del found[1:]
        return found

    def _called(self, first):
        if not first:
            return f"another {self.name}"
        return self.name if self.name == self.asked else f"{self.asked}: defined as {self.name}"

    def _forms(self, steps):
        """The forms that the steps gave it, in the order of reading; each is compared with the form
        that the step began with."""
        chosen = {step.number for step in steps}
        left: dict[Any, tuple[Source | None, str, str]] = {None: (None, "", "")}
        found = {}
        for number in self.curriculum.roads.later():  # each after the one that it begins at
            step = self.curriculum.by_number[number]
            before = left[self.curriculum.roads.before[number]]
            form, left[number] = None, before
            if number in chosen:
                form, left[number] = self._form(step, *before)
            if form:
                found[number] = form
        return [found[step.number] for step in steps if step.number in found]

    def _form(self, step, source, former, text):
        """The form that a step gives to the definition, if any, and what it leaves to the next: the
        source that holds the latest form, the name there, and the text around it."""
        name = name_in(self.curriculum, self.name, step)
        before, text = text, passage(step, name)
        if source is not None and former == name and before == text:
            return None, (source, former, text)
        form, here = None, holder(step, name)
        if here is not None:
            definition = here.definitions[name]
            if source is None:
                lines = len(here.code_of(name))
                form = Form(step, definition, lines, start="again" if former else "first")
            elif source.definitions[former].text != definition.text:
                changed = count(source.code_of(former), here.code_of(name))
                form = Form(step, definition, *changed)
            return form, (here, name, text)
        if source is not None and former in step.removes:
            return Form(step, None), (None, former, text)
        return None, (source, former, text)

    def _last_holder(self, steps):
        for step in reversed(steps):
            name = name_in(self.curriculum, self.name, step)
            if definition := find(step, name):
                return step, definition
        return None


def name_in(curriculum: Curriculum, name: str, step: Step) -> str:
    """What a definition is called in a step, whatever it was called before or is called later."""
    return _name_after(curriculum, name, _renamings_below(curriculum, step.number))


@lru_cache(maxsize=4096)  # all steps: a history asks three times for each
def _renamings_below(curriculum, number):
    """For each step that renames something, whether another one is it or stands on it."""
    stands_on = curriculum.roads.stands_on
    return tuple(
        each.number == number or stands_on(number, each.number) for each in curriculum.renaming
    )


@lru_cache(maxsize=4096)  # most steps stand on the same ones
def _name_after(curriculum, name, below):
    renamings = list(zip(curriculum.renaming, below, strict=True))
    for each, is_below in renamings:  # forwards: the renamings up to the step
        if is_below:
            name = heir(name, each.renames)
    for each, is_below in reversed(renamings):  # backwards: those that come later or elsewhere
        if not is_below:
            name = heir(name, {new: old for old, new in each.renames.items()})
    return name


def known_names(curriculum: Curriculum) -> list[str]:
    """Every name that a step or a module defines, the latest ones first."""
    found: dict[str, None] = {}
    for module in curriculum.built_modules:
        if fault_of(module):
            continue
        found |= dict.fromkeys(module.source.definitions)
    for step in reversed(curriculum.readable):
        found |= dict.fromkeys(step.source.definitions)
    return list(found)


def in_the_package(curriculum: Curriculum, name: str) -> str:
    """The definition behind a name that a program writes: "Tensor.sum" is sum, "torch.clip" clamp.

    Operations attach their methods, and some have several names. The package itself knows which.
    """
    return found_in_package(curriculum, name)[0]


def found_in_package(curriculum: Curriculum, name: str) -> tuple[str, Module | None]:
    """The same, with the module that holds it."""
    try:
        value: Any = importlib.import_module("tinytorch")
    except Exception:  # no NumPy, or a module that is being written
        return "", None
    if not Path(value.__file__).is_relative_to(curriculum.root):
        return "", None
    for part in name.removeprefix("tinytorch.").removeprefix("torch.").split("."):
        value = inspect.getattr_static(value, part, None)
    value = getattr(value, "fget", None) or getattr(value, "__func__", value)
    value = inspect.unwrap(value)  # the method is the function that the module has checked
    maker = getattr(value, "__qualname__", "").partition(".<locals>")[0]
    if value is None or isinstance(value, (bool, int, float, str)):
        return "", None
    for module in curriculum.built_modules:
        loaded = vars(sys.modules.get(module.dotted, object))
        called = {name for name, each in loaded.items() if inspect.unwrap(each) is value}
        if called and not fault_of(module):
            for each in module.source.top_level:
                if called & set(each.split(", ")):
                    return each, module
        if maker and module.dotted == getattr(value, "__module__", "") and find(module, maker):
            return maker, module
    # A form that is written in place is made of the other one: exp_ of exp, __ixor__ of __xor__.
    plain = re.sub(r"(?<=[^_])_$|(?<=\.__)i(?=\w+__$)", "", name)
    return found_in_package(curriculum, plain) if plain != name else ("", None)


def _is_defined(curriculum, name):
    files = [*curriculum.built_modules, *reversed(curriculum.steps)]
    return any(find(each, name) for each in files)


def _suggestion(name, curriculum):
    """Methods of that name ("backward" -> "Variable.backward"), or names that are nearly the same.

    Where there are neither, a guess would only mislead.
    """
    files = [*curriculum.built_modules, *reversed(curriculum.steps)]
    names = list(dict.fromkeys(each for file in files for each in names_of(file)))
    last = name.rpartition(".")[2].lower()
    same = [each for each in names if each.rpartition(".")[2].lower() == last]
    return nearest(name, same or names, least=0.0 if same else 0.66)
