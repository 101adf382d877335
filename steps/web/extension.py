"""What Sphinx learns: a step, a definition, formulas as MathML, and the order of the pages."""

from __future__ import annotations

from html import escape

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.domains import Domain, ObjType
from sphinx.util.docutils import SphinxDirective

from ..companion.curriculum import Run, Step
from ..companion.difference import Difference
from ..companion.minutes import minutes, told
from ..companion.overview import runs_of
from . import outputs
from .code import folded, kept_difference, printed
from .lives import lives_html
from .project import (
    DEPTH,
    addresses,
    anchor,
    curriculum,
    digest,
    digest_of,
    link,
    pages,
    settings,
    steps_digest,
)
from .prose import body


class html_block(nodes.General, nodes.Element):
    """HTML that the search does not index: a page is found by its words and its titles."""


class StepDomain(Domain):
    """The steps by their titles, so that the search leads to a step and not only to its page."""

    name, label = "tinytorch", "tinytorch"
    object_types = {"step": ObjType("step")}
    initial_data: dict = {"steps": {}}

    def clear_doc(self, docname):
        self.data["steps"].pop(docname, None)

    def merge_domaindata(self, docnames, otherdata):
        self.data["steps"] |= {
            d: otherdata["steps"][d] for d in docnames if d in otherdata["steps"]
        }

    def get_objects(self):
        for docname, steps in self.data["steps"].items():
            for title, at in steps:
                # the search shows the names as they are, and Sphinx writes ' as &#x27; in them
                name = title.replace("'", "\N{RIGHT SINGLE QUOTATION MARK}")
                yield name, name, "step", docname, at, 0


class StepDirective(SphinxDirective):
    """`.. step:: 14`: a section with the text, the difference and what it prints."""

    required_arguments = 1

    def run(self):
        step, here = curriculum().step(self.arguments[0]), self.env.docname
        title = f"Step {step.number}: {step.title}"
        domain = self.env.get_domain("tinytorch")
        domain.data["steps"].setdefault(here, []).append((title, anchor(step)))
        section = nodes.section(ids=[anchor(step)], names=[anchor(step)], classes=["step"])
        section += nodes.title("", title)
        section += html_block(html=_meta(step))
        section += body(step.source.docstring.partition("\n")[2], here)
        section += html_block(html=beside_html(step, here))
        section += html_block(html=kept_difference(step, here))
        section += html_block(html=_output(step))
        return [section]


class DefinitionDirective(SphinxDirective):
    """`.. definition:: Tensor.backward`: every form that it had."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self):
        return [html_block(html=lives_html(self.arguments[0], self.env.docname))]


def _meta(step: Step) -> str:
    place = Difference(curriculum(), step).place
    words = f"{place} · {told(minutes(curriculum(), step))} · "
    file = f"<code>{step.file}</code>"
    if settings()["repository"]:
        file = f'<a href="{settings()["repository"]}/blob/main/{step.file}">{file}</a>'
    return f'<p class="meta">{escape(words)}{file}</p>'


def beside_html(step: Step, here: str) -> str:
    """Links to the runs in depth that lie beside a step."""
    runs = [each for each in runs_of(curriculum()) if each[0].beside == step.number]
    links = [
        f'<a href="{link(here, addresses()[steps[0].number])}">{run.name}</a> '
        f"({escape(run.title)}, {len(steps)} step{'s' if len(steps) > 1 else ''})"
        for run, steps in runs
        if steps[0].number in addresses()
    ]
    return f'<p class="beside"><b>In depth beside it</b> {", ".join(links)}</p>' if links else ""


def _output(step: Step) -> str:
    if step.run:
        text = outputs.promised(step)
        note = "What it promises to print, and the tests check; ... stands for what varies."
    else:
        text, note = outputs.run(step), ""
    if not text.strip():
        return ""
    found = printed(text, f"python {step.file}")
    if text.count("\n") > 30:
        found = folded(f"what it prints: {text.count(chr(10))} lines", found, is_open=False)
    drawn = "".join(f'<p class="drawn">{each}</p>' for each in outputs.pictures(text))
    return found + (f'<p class="note">{note}</p>' if note else "") + drawn


def _write_html(translator, node):
    translator.body.append(node["html"])
    raise nodes.SkipNode


def _inline_math(translator, node):
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _block_math(translator, node):
    # MyST gives several lines as one formula; each row is one
    formula = convert(node.astext(), display="block")
    translator.body.append(f'<div class="wide">{formula}</div>')
    raise nodes.SkipNode


def _order(app, pagename, templatename, context, doctree):
    """Pages in depth and of definitions are in no table of contents: they are too many for a side
    bar. What lies before and behind them is said here."""
    if not pagename.startswith(f"{DEPTH}/") or pagename == f"{DEPTH}/index":
        return
    names = [page.name for page in pages() if isinstance(page.group, Run)]
    if pagename in names:
        at = names.index(pagename)
        around = {"prev": names[at - 1] if at else f"{DEPTH}/index"}
        around["next"] = names[at + 1] if at + 1 < len(names) else f"{DEPTH}/index"
        for which, name in around.items():
            title = app.env.titles[name].astext()
            context[which] = {"link": link(pagename, f"{name}.html"), "title": title}


def setup(app):
    app.add_domain(StepDomain)
    app.add_directive("step", StepDirective)
    app.add_directive("definition", DefinitionDirective)
    app.add_node(html_block, html=(_write_html, None))
    app.add_html_math_renderer(
        "mathml", inline_renderers=(_inline_math, None), block_renderers=(_block_math, None)
    )
    app.connect("html-page-context", _order)
    # A change of a step may change any page of a definition. So Sphinx reads all pages anew then,
    # which the cache makes quick.
    made_by = digest(steps_digest(), digest_of("steps/web/*.py"))
    return {"env_version": made_by, "parallel_read_safe": True, "parallel_write_safe": True}
