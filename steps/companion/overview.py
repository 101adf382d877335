"""What there is to read: where the reader is, the stages and the runs, and the tables of both
roads."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator

from .complaint import Complaint
from .curriculum import Curriculum, CurriculumError, Run, Stage, Step
from .minutes import minutes, minutes_of, told
from .names import nearest
from .paint import paint
from .practice import practice_line, solved
from .reading import main_road, read_steps
from .source import SourceError

BAR = 32  # columns
# A row of README.md, | 7 | Networks | 41-44 | 1 |, or of several stages, whose first cell is 1-10;
# and a sentence of it.
HOURS_ROW = re.compile(
    r"^(\| (\d+)(?:-(\d+))? \|[^|]+\|[^|]+\| )(?:[\d.]+|to come|待写)(?= \|)", re.MULTILINE
)
HOURS_TEXT = re.compile(r"(Part I takes about |第一部分大约需要 )[\d.]+(?= hours| 小时)")
READMES = {"README.md": "to come", "README.zh.md": "待写"}  # and what is said where no step is
PART_I = 1, 10  # stages


def overview(curriculum: Curriculum) -> str:
    """Where the reader is, how much is left, and what comes next."""
    road, read = main_road(curriculum), read_steps(curriculum)
    if not road:
        return "There are no steps yet."
    done = BAR * len(read) // len(road)
    left = told(minutes_of(curriculum, road[len(read) :]))
    rows = [
        paint("#" * done, "green") + "-" * (BAR - done) + f"  {len(read)} of {len(road)} steps, "
        f"{told(minutes_of(curriculum, read))} read, {left} to go",
        "",
    ]
    if read:
        rows += [f"last   {read[-1].label}: {title_of(read[-1])}"]
        rows += ["       " + line for line in beside_line(curriculum, read[-1])]
        rows += ["       " + line for line in practice_line(curriculum, read[-1])]
    if count := len(solved(curriculum)):
        rows.append(f"done   {count} exercise{'s' if count != 1 else ''} solved")
    if len(read) < len(road):
        step = road[len(read)]
        rows.append(f"next   {step.label}: {title_of(step)}, {told(minutes(curriculum, step))}")
        if step.stage and not any(each.stage == step.stage for each in read):
            rows.append(f"       It begins stage {step.stage.number}: {step.stage.title}.")
    rows += ["", "python -m steps next     show it"] if len(read) < len(road) else [""]
    rows += ["python -m steps list     all steps", "python -m steps --help   all commands"]
    return "\n".join(rows)


def runs_of(curriculum: Curriculum) -> list[tuple[Run, list[Step]]]:
    """The runs in depth that have steps."""
    groups = curriculum.groups([step for step in curriculum.steps if step.run])
    return [(run, steps) for run, steps in groups if isinstance(run, Run)]


def beside_line(curriculum: Curriculum, step: Step) -> list[str]:
    """What lies beside a step of the main road, in a line; none where nothing does."""
    runs = [each for each in runs_of(curriculum) if each[0].beside == step.number]
    if not runs:
        return []
    names = ", ".join(f"{run.name} ({_size(curriculum, steps)})" for run, steps in runs)
    return [f"In depth beside it: {names}. See: python -m steps list {runs[0][0].name}"]


def listing(curriculum: Curriculum, asked: str | None, everything: bool) -> Iterator[str]:
    """The main road by stages, one stage or run, or everything; a text for each part."""
    try:
        read = read_steps(curriculum)
    except CurriculumError:  # a place that cannot be read is no reason not to list
        read = []
    runs = runs_of(curriculum)
    if asked is None:
        chosen: list[Stage | Run] = list(curriculum.stages)
    elif asked.isdigit():
        chosen = [stage for stage in curriculum.stages if stage.number == int(asked)]
        if not chosen:
            count = len(curriculum.stages)
            raise CurriculumError(f"There is no stage {asked}. There are stages 1 to {count}.")
    else:
        chosen = [run for run, _ in runs if run.name == asked.lower()]
        if not chosen:
            near = nearest(asked, [run.name for run, _ in runs])
            raise CurriculumError(f"{asked!r} is no stage (8) and no run in depth (conv)." + near)
    for part in chosen:
        if isinstance(part, Run):
            yield _run_text(curriculum, part, dict(runs)[part])
            continue
        mine = [(run, steps) for run, steps in runs if run.stage == part]
        rows = _stage_rows(curriculum, part, read, modules=everything or asked is not None)
        if asked is not None:
            rows += [_run_row(curriculum, *each) for each in mine]
        elif mine and not everything:
            names = ", ".join(f"{run.name}\0{len(steps)}" for run, steps in mine)
            wrapped = textwrap.wrap(f"  in depth: {names}", 96, subsequent_indent="    ")
            rows += [line.replace("\0", " ") for line in wrapped]
        yield "\n".join(rows) + "\n"
        for run, steps in mine if everything else ():
            yield _run_text(curriculum, run, steps)


def _stage_rows(curriculum, stage, read, modules):
    steps = [step for step in main_road(curriculum) if step.stage == stage]
    size = f"   {_size(curriculum, steps)}" if steps else "  (to come)"
    done = sum(step in read for step in steps)
    size += f", {done} read" if 0 < done < len(steps) else ", read" if done else ""
    place = read[-1] if read else None
    return [
        paint(f"stage {stage.number}  {stage.title}", "bold") + paint(size, "faint"),
        *_step_rows(curriculum, steps, place, modules),
    ]


def _run_text(curriculum, run, steps):
    head = paint(f"{run.name}  {run.title}", "bold")
    size = paint(f"   in depth, beside step {run.beside}, {_size(curriculum, steps)}", "faint")
    return "\n".join([head + size, *_step_rows(curriculum, steps, None, True)]) + "\n"


def _run_row(curriculum, run, steps):
    return paint(f"  in depth: {run.name}  {run.title}, {_size(curriculum, steps)}", "faint")


def _step_rows(curriculum, steps, place, modules):
    titles = [title_of(step) for step in steps]
    notes = ["" if step.kind == "lesson" else f"  ({step.kind})" for step in steps]
    width = max(map(len, map(str.__add__, titles, notes)), default=0)
    for step, title, note in zip(steps, titles, notes, strict=True):
        mark = ">" if step == place else " "
        time = f"{told(minutes(curriculum, step)):>8}"
        room = " " * (width - len(title + note))
        yield f"{mark} {step.number!s:3} {title}{paint(note, 'faint')}{room}{paint(time, 'faint')}"
        for module in curriculum.modules if modules else ():
            if module.finished == step.number:
                yield paint(f"      -> {module.name}", "faint")


def _size(curriculum, steps):
    count = f"{len(steps)} step{'s' if len(steps) != 1 else ''}"
    return f"{count}, {told(minutes_of(curriculum, steps))}"


def title_of(step: Step) -> str:
    """The title of a step, or why it cannot be read."""
    try:
        return step.title
    except SourceError as error:
        return str(error)


def tables(curriculum: Curriculum) -> dict[str, str]:
    """The tables of both roads, by file: they say what is in the two folders, and each README,
    where it has a table of stages, how long they take."""
    road = main_road(curriculum)
    found = [
        "# The main road",
        "",
        f"{_size(curriculum, road)} by the companion's rule. The file is written by "
        "`python -m steps readme`.",
    ]
    runs = runs_of(curriculum)
    for stage in curriculum.stages:
        steps = [step for step in road if step.stage == stage]
        if steps:
            size = _size(curriculum, steps)
            found += ["", f"## Stage {stage.number}: {stage.title}", "", size + ".", ""]
            found += _table(curriculum, steps)
        mine = [(run, each) for run, each in runs if run.stage == stage]
        if mine and not steps:
            found += ["", f"## Stage {stage.number}: {stage.title}"]
        if mine:
            links = [f"[{run.name}](depth/README.md#{_anchor(run)})" for run, _ in mine]
            found += ["", f"In depth: {', '.join(links)}."]
    files = {"steps/README.md": "\n".join(found) + "\n"}
    if runs:
        steps = [step for _, each in runs for step in each]
        found = [
            "# In depth",
            "",
            f"How each module of the package was finished: {len(runs)} runs, "
            f"{_size(curriculum, steps)}. The file is written by `python -m steps readme`.",
        ]
        for run, steps in runs:
            beside = curriculum.by_number.get(run.beside)
            after = f"[{run.beside}](../{run.beside.file})" if beside else str(run.beside)
            found += ["", f"## {run.name}: {run.title}", ""]
            found += [f"{_size(curriculum, steps)}; beside step {after}.", ""]
            found += _table(curriculum, steps)
        files["steps/depth/README.md"] = "\n".join(found) + "\n"
    for name, to_come in READMES.items():
        readme = curriculum.root / name
        if readme.exists() and HOURS_ROW.search(text := readme.read_text(encoding="utf-8")):
            files[name] = _with_hours(curriculum, text, to_come)
    return files


def _with_hours(curriculum, text, to_come):
    """The text of a README with the hours of today, to half an hour."""

    def of(first, last):
        steps = [s for s in main_road(curriculum) if s.stage and first <= s.stage.number <= last]
        return f"{round(minutes_of(curriculum, steps) / 30) / 2:g}" if steps else to_come

    def row(match):
        first = int(match[2])
        return match[1] + of(first, int(match[3] or first))

    return HOURS_TEXT.sub(lambda match: match[1] + of(*PART_I), HOURS_ROW.sub(row, text))


def _table(curriculum: Curriculum, steps: Iterable[Step]):
    yield "| step | title | minutes |"
    yield "|---|---|--:|"
    for step in steps:
        title = title_of(step).replace("|", "\\|")
        count = round(minutes(curriculum, step))
        yield f"| [{step.number}]({step.path.name}) | {title} | {count} |"


def _anchor(run):
    """What a page makes of the heading: lower case, blanks as dashes, no other signs."""
    kept = [c for c in f"{run.name}: {run.title}".lower() if c.isalnum() or c in " -_"]
    return "".join(kept).replace(" ", "-")


def check_tables(curriculum: Curriculum):
    """The tables of both roads say what there is. They are wanted as soon as there are two."""
    for name, text in tables(curriculum).items() if runs_of(curriculum) else ():
        path = curriculum.root / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            yield Complaint(name, "is not what the steps say", "python -m steps readme")
