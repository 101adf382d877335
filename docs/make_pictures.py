"""Draw the two pictures of the README again: `make pictures`.

docs/step14.svg   what `python -m steps diff 14` prints
docs/graph.svg    the graph of Matyas' function, recorded by the code of step 24

Both are the same on every machine, and tests hold them to that.
"""

import subprocess
import sys
from html import escape
from pathlib import Path

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path.insert(0, str(ROOT))

from steps.companion.drawing import picture  # noqa: E402
from steps.companion.notebook import load  # noqa: E402

SIZE, ROW, WIDTH_OF_LETTER = 13, 18, 7.83  # of a monospaced font, in pixels
MARGIN = 14
TINTS = {"+": "#dafbe1", "-": "#ffebe9"}
INK, FAINT, FRAME = "#1f2328", "#656d76", "#d0d7de"


def difference(step):
    """What the companion prints for a step, line by line."""
    command = [sys.executable, "-m", "steps", "diff", str(step)]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [f"$ python -m steps diff {step}", "", *printed.stdout.rstrip().splitlines()]


def mark_of(line):
    """ "+" or "-" for a numbered line that was added or removed, otherwise "": "   66  + code"."""
    number, _, rest = line.strip().partition("  ")
    return rest[0] if number.isdigit() and rest[:1] in TINTS else ""


def terminal(lines):
    """An SVG picture of a terminal that shows these lines."""
    width = round(max(map(len, lines)) * WIDTH_OF_LETTER) + 2 * MARGIN
    height = len(lines) * ROW + 2 * MARGIN
    font = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
    shapes = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
        f' viewBox="0 0 {width} {height}" font-family="{font}" font-size="{SIZE}">',
        f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="6"'
        f' fill="#ffffff" stroke="{FRAME}"/>',
    ]
    for i, line in enumerate(lines):
        top = MARGIN + i * ROW
        if tint := TINTS.get(mark_of(line)):
            shapes.append(
                f'<rect x="1" y="{top}" width="{width - 2}" height="{ROW}" fill="{tint}"/>'
            )
        ink = FAINT if line.startswith("$") else INK
        weight = ' font-weight="bold"' if line.startswith("Step ") else ""
        shapes.append(
            f'<text x="{MARGIN}" y="{top + SIZE}" fill="{ink}"{weight}'
            f' xml:space="preserve">{escape(line)}</text>'
        )
    return "\n".join([*shapes, "</svg>", ""])


def matyas_graph():
    """The graph of Matyas' function, recorded and described by the code of step 24."""
    step = load(24)
    x, y = step.Variable(3.0, name="x"), step.Variable(2.0, name="y")
    z = 0.26 * (x**2 + y**2) - 0.48 * x * y
    z.name = "z"
    return picture(step.to_dot(z)).svg


def main():
    (DOCS / "step14.svg").write_text(terminal(difference(14)))
    (DOCS / "graph.svg").write_text(matyas_graph())


if __name__ == "__main__":
    main()
