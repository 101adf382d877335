"""Drawings of small graphs as SVG, without Graphviz: they look the same on every machine.

`picture(text)` takes a graph in Graphviz's language, as `to_dot` of the steps writes it. The layout
is the layered one of Sugiyama, Tagawa and Toda: every node gets a layer so that edges point
forward, each layer is ordered so that few edges cross, and then the nodes are moved towards their
neighbours as far as the order allows.
"""

from __future__ import annotations

import base64
import html
import json
import re
from dataclasses import dataclass, field

FONT = "Helvetica, Arial, 'Liberation Sans', sans-serif"
SIZE, LINE = 13, 16  # of the letters, and from line to line, in pixels
LAYER_GAP, NODE_GAP, MARGIN = 34, 14, 6
BOW = 36  # how far an edge that closes a circle leans out
PAGE = 900  # pixels: the width of a page
INK, BOX_FILL = "#24292f", "#dbeafe"


@dataclass(eq=False)
class Node:
    """A box, an ellipse, or, without lines of text, a bend of a long edge."""

    lines: list[str] = field(default_factory=list)
    look: dict[str, str] = field(default_factory=dict)
    layer: int = 0
    x: float = 0.0
    y: float = 0.0

    @property
    def is_box(self) -> bool:
        return self.look.get("shape") == "box"

    @property
    def width(self) -> float:
        if not self.lines:
            return 0.0
        widest = max(map(text_width, self.lines))
        return widest + 20 if self.is_box else max(1.2 * widest + 18, 42.0)

    @property
    def height(self) -> float:
        return len(self.lines) * LINE + (12 if self.is_box else 13) if self.lines else 4.0


@dataclass(eq=False)
class Edge:
    start: Node
    end: Node
    look: dict[str, str] = field(default_factory=dict)
    turned: bool = False  # part of a circle: laid out backwards, drawn forwards
    bends: list[Node] = field(default_factory=list)

    @property
    def path(self) -> list[Node]:
        return [self.start, *self.bends, self.end]


class Picture:
    """An SVG that a notebook shows as an image, trusted or not, no wider than its page."""

    def __init__(self, svg: str, text: str = ""):
        self.svg, self.text = svg, text

    def _repr_html_(self) -> str:
        data = base64.b64encode(self.svg.encode()).decode()
        width = min(int(re.search(r'width="(\d+)"', self.svg)[1]), PAGE)
        style = "max-width:100%;height:auto"
        image = f'<img src="data:image/svg+xml;base64,{data}" width="{width}"'
        return f'{image} style="{style}" alt="{html.escape(self.text)}">'

    def __repr__(self) -> str:
        return self.text or "a drawing"


def picture(dot: str, direction: str | None = None) -> Picture:
    """Draw a graph. direction: "LR" or "TB"; by default LR, or TB if it would be too wide."""
    nodes, edges, options = parse(dot)
    direction = direction or options.get("rankdir")
    svg, width = render(nodes, edges, direction or "LR")
    if direction is None and width > 1.5 * PAGE:  # too small to read, if made to fit
        nodes, edges, _ = parse(dot)  # afresh: the first drawing has moved them
        downwards, narrow = render(nodes, edges, "TB")
        svg = downwards if narrow < width else svg
    calls = sum(node.is_box for node in nodes)
    return Picture(svg, f"a graph of {calls} boxes and {len(nodes) - calls} ellipses")


# --- reading Graphviz's language --------------------------------------------------------------

_NAME = r'"(?:[^"\\]|\\.)*"|[\w.]+'
_OPTIONS = re.compile(rf"(\w+)\s*=\s*({_NAME}|#\w+)")


def parse(dot: str) -> tuple[list[Node], list[Edge], dict[str, str]]:
    """The nodes, the edges and the options of a graph; of the language only what steps use."""
    nodes: dict[str, Node] = {}
    edges: list[Edge] = []
    options: dict[str, str] = {}
    for line in re.split(r"[;\n]", dot.partition("{")[2].rpartition("}")[0]):
        statement = re.match(rf"\s*((?:{_NAME})(?:\s*->\s*(?:{_NAME}))*)\s*(?:\[(.*)\])?\s*$", line)
        if statement is None:
            options |= {key: _plain(value) for key, value in _OPTIONS.findall(line)}
            continue
        names = [_plain(name) for name in re.findall(_NAME, statement[1])]
        look = {key: _plain(value) for key, value in _OPTIONS.findall(statement[2] or "")}
        for name in names:
            nodes.setdefault(name, Node([name]))
        if len(names) == 1:
            nodes[names[0]].look |= look
            if "label" in look:
                nodes[names[0]].lines = look["label"].split("\n")
        for start, end in zip(names, names[1:], strict=False):
            edges.append(Edge(nodes[start], nodes[end], look))
    return list(nodes.values()), edges, options


def _plain(text):
    return json.loads(text, strict=False) if text.startswith('"') else text


def quoted(text: str) -> str:
    """A text as Graphviz's language writes it."""
    return json.dumps(text, ensure_ascii=False)


def text_width(text: str) -> float:
    """About how wide a line is, in pixels: fonts differ a little."""
    narrow, wide = "ijltfI.,:;'|!()[] ", "mwMW@%"
    units = sum(0.32 if c in narrow else 0.88 if c in wide else 0.58 for c in text)
    return SIZE * units + SIZE * 0.1 * sum(c.isupper() for c in text)


# --- the layout --------------------------------------------------------------------------------


def arrange(nodes: list[Node], edges: list[Edge], direction: str) -> list[list[Node]]:
    """Give every node its place, and every long edge its bends. Returns the layers."""
    across = "y" if direction == "LR" else "x"  # the axis along which a layer's nodes stand
    _open_circles(nodes, edges)
    _choose_layers(nodes, edges)
    layers: list[list[Node]] = [[] for _ in range(max((n.layer for n in nodes), default=-1) + 1)]
    for node in nodes:
        layers[node.layer].append(node)
    for edge in edges:
        low, high = edge.start.layer, edge.end.layer
        edge.bends = [Node(layer=layer) for layer in range(low + 1, high)]
        for bend in edge.bends:
            layers[bend.layer].append(bend)
    ahead = [edge.path for edge in edges if not edge.turned]
    links = [pair for path in ahead for pair in zip(path, path[1:], strict=False)]
    before: dict[Node, list[Node]] = {}
    after: dict[Node, list[Node]] = {}
    for a, b in links:
        after.setdefault(a, []).append(b)
        before.setdefault(b, []).append(a)
    _order(layers, before, after)
    margin = MARGIN + (BOW if any(edge.turned for edge in edges) else 0)
    _spread(layers, before, after, across, margin)
    place = MARGIN
    for number, layer in enumerate(layers):
        extents = [node.width if direction == "LR" else node.height for node in layer]
        for node in layer:
            setattr(node, "x" if direction == "LR" else "y", place + max(extents) / 2)
        labels = [e.look.get("label", "") for e in edges if e.start.layer == number]
        wide = max(map(text_width, labels), default=0) if direction == "LR" else 0
        place += max(extents) + max(LAYER_GAP, wide + 20)
    return layers


def _open_circles(nodes, edges):
    """Mark the edges that close a circle, so that the others lead forward."""
    leaving: dict[Node, list[Edge]] = {node: [] for node in nodes}
    for edge in edges:
        leaving[edge.start].append(edge)
    state: dict[Node, str] = {}
    for root in nodes:
        stack = [(root, iter(leaving[root]))] if root not in state else []
        state.setdefault(root, "open")
        while stack:
            node, rest = stack[-1]
            edge = next(rest, None)
            if edge is None:
                state[node] = "done"
                stack.pop()
            elif state.get(edge.end) == "open":
                edge.turned = True
            elif edge.end not in state:
                state[edge.end] = "open"
                stack.append((edge.end, iter(leaving[edge.end])))


def _choose_layers(nodes, edges):
    """A node comes after all that lead to it. Where nothing leads to it, it stands by its use."""
    pairs = [(e.end, e.start) if e.turned else (e.start, e.end) for e in edges]
    pairs = [(a, b) for a, b in pairs if a is not b]
    for _ in nodes:  # the longest path to each node; a graph of n nodes needs n rounds at most
        late = [(a, b) for a, b in pairs if b.layer <= a.layer]
        if not late:
            break
        for a, b in late:
            b.layer = max(b.layer, a.layer + 1)
    ends = {b for _, b in pairs}
    for node in nodes:
        uses = [b.layer for a, b in pairs if a is node]
        if node not in ends and uses:
            node.layer = min(uses) - 1


def _order(layers, before, after):
    """Order each layer by the mean place of its neighbours; keep what crosses least."""
    best, fewest = [list(layer) for layer in layers], _crossings(layers, after)
    for round_ in range(24):
        backwards = round_ % 2
        sides = after if backwards else before
        for layer in reversed(layers) if backwards else layers:
            index = {node: i for each in layers for i, node in enumerate(each)}

            def mean(node, sides=sides, index=index):
                near = sides.get(node)
                return sum(map(index.get, near)) / len(near) if near else index[node]

            layer.sort(key=mean)
        if (count := _crossings(layers, after)) < fewest:
            best, fewest = [list(layer) for layer in layers], count
    for layer, order in zip(layers, best, strict=True):
        layer[:] = order


def _crossings(layers, after):
    index = {node: i for layer in layers for i, node in enumerate(layer)}
    count = 0
    for layer in layers:
        ends = [index[b] for a in layer for b in sorted(after.get(a, ()), key=index.get)]
        count += sum(x > y for i, x in enumerate(ends) for y in ends[i + 1 :])
    return count


def _spread(layers, before, after, across, margin):
    """Move the nodes towards the middle of their neighbours; none overlaps the next one."""

    def extent(node):
        return node.height if across == "y" else node.width

    def distances(layer):
        """From the first node of a layer to each: the least that keeps them apart."""
        found = [0.0]
        for a, b in zip(layer, layer[1:], strict=False):
            found.append(found[-1] + (extent(a) + extent(b)) / 2 + NODE_GAP)
        return found

    for layer in layers:
        apart = distances(layer)
        for node, distance in zip(layer, apart, strict=True):
            setattr(node, across, distance - apart[-1] / 2)
    for round_ in range(30):
        for layer in reversed(layers) if round_ % 2 else layers:
            apart = distances(layer)
            wishes, weights = [], []
            for node, distance in zip(layer, apart, strict=True):
                # A bend pulls harder on a bend: long edges become straight.
                near = [(n, 1.0 if n.lines or node.lines else 6.0) for n in before.get(node, ())]
                near += [(n, 1.0 if n.lines or node.lines else 6.0) for n in after.get(node, ())]
                near = near or [(node, 1.0)]
                total = sum(weight for _, weight in near)
                wish = sum(weight * getattr(n, across) for n, weight in near) / total
                wishes.append(wish - distance)
                weights.append(total)
            for node, place, distance in zip(layer, _rising(wishes, weights), apart, strict=True):
                setattr(node, across, place + distance)
    lowest = min((getattr(n, across) - extent(n) / 2 for layer in layers for n in layer), default=0)
    for layer in layers:
        for node in layer:
            setattr(node, across, getattr(node, across) - lowest + margin)


def _rising(wishes, weights):
    """The numbers nearest to `wishes` (least squares) that never fall: neighbours are pooled."""
    pools: list[list[float]] = []  # mean, weight, count
    for wish, weight in zip(wishes, weights, strict=True):
        pools.append([wish, weight, 1])
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            mean, heavy, count = pools.pop()
            last = pools[-1]
            last[0] = (last[0] * last[1] + mean * heavy) / (last[1] + heavy)
            last[1], last[2] = last[1] + heavy, last[2] + count
    return [mean for mean, _, count in pools for _ in range(int(count))]


# --- the drawing -------------------------------------------------------------------------------


def render(nodes: list[Node], edges: list[Edge], direction: str) -> tuple[str, float]:
    """The SVG, and how wide it is."""
    layers = arrange(nodes, edges, direction)
    everything = [node for layer in layers for node in layer]
    width = max((n.x + n.width / 2 for n in everything), default=0) + MARGIN
    height = max((n.y + n.height / 2 for n in everything), default=0) + MARGIN
    shapes = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}"'
        f' viewBox="0 0 {width:.0f} {height:.0f}" font-family="{FONT}" font-size="{SIZE}">',
        '<rect width="100%" height="100%" fill="white"/>',  # a page may be dark
    ]
    shapes += [_edge(edge, edges, direction) for edge in edges]
    shapes += [_node(node) for node in nodes]
    return "\n".join([*shapes, "</svg>", ""]), width


def _node(node):
    color = node.look.get("color", INK)
    fill = node.look.get("fillcolor", BOX_FILL if node.is_box else "white")
    dashes = ' stroke-dasharray="4 3"' if "dashed" in node.look.get("style", "") else ""
    paint = f'fill="{fill}" stroke="{color}"{dashes}'
    w, h = node.width, node.height
    if node.is_box:
        shape = f'<rect x="{node.x - w / 2:.1f}" y="{node.y - h / 2:.1f}"'
        shape += f' width="{w:.1f}" height="{h:.1f}" rx="4" {paint}/>'
    else:
        shape = f'<ellipse cx="{node.x:.1f}" cy="{node.y:.1f}"'
        shape += f' rx="{w / 2:.1f}" ry="{h / 2:.1f}" {paint}/>'
    top = node.y - len(node.lines) * LINE / 2 + SIZE
    ink = node.look.get("fontcolor", INK)
    texts = [
        f'<text x="{node.x:.1f}" y="{top + i * LINE:.1f}" text-anchor="middle" fill="{ink}">'
        f"{html.escape(line)}</text>"
        for i, line in enumerate(node.lines)
    ]
    return shape + "".join(texts)


def _port(edge, node, meeting, direction, side):
    """Where an edge meets its node: those of one side stand apart, in the order of their ends."""
    across = "y" if direction == "LR" else "x"
    far = -2 if node is edge.end else 1  # in the path: the neighbour of the node
    order = sorted(meeting, key=lambda e: getattr(e.path[far], across))
    w, h = (node.width, node.height) if direction == "LR" else (node.height, node.width)
    place = order.index(edge) - (len(order) - 1) / 2
    offset = place * min(11, 0.7 * h / len(order))
    reach = w / 2 if node.is_box else w / 2 * (1 - (2 * offset / h) ** 2) ** 0.5
    if direction == "LR":
        return node.x + side * reach, node.y + offset
    return node.x + offset, node.y + side * reach


def _edge(edge, edges, direction):
    if edge.turned:
        return _bow(edge, direction)
    leaving = [e for e in edges if e.start is edge.start and not e.turned]
    coming = [e for e in edges if e.end is edge.end and not e.turned]
    first = _port(edge, edge.start, leaving, direction, 1)
    tip = _port(edge, edge.end, coming, direction, -1)
    along = (1, 0) if direction == "LR" else (0, 1)
    last = tip[0] - 7 * along[0], tip[1] - 7 * along[1]
    points = [first, *((n.x, n.y) for n in edge.bends), last]
    text = f"M{first[0]:.1f},{first[1]:.1f}"
    for (x0, y0), (x1, y1) in zip(points, points[1:], strict=False):
        mx, my = (x0 + x1) / 2, (y0 + y1) / 2
        c0, c1 = ((mx, y0), (mx, y1)) if direction == "LR" else ((x0, my), (x1, my))
        text += f" C{c0[0]:.1f},{c0[1]:.1f} {c1[0]:.1f},{c1[1]:.1f} {x1:.1f},{y1:.1f}"
    middle = (points[0][0] + points[1][0]) / 2, (points[0][1] + points[1][1]) / 2
    return _arrow(text, tip, along, edge.look) + _label(edge, *middle)


def _bow(edge, direction):
    """An edge that closes a circle runs around the others, from side to side of its nodes."""
    a, b = edge.start, edge.end
    if direction == "LR":
        start, tip = (a.x, a.y - a.height / 2), (b.x, b.y - b.height / 2)
        high = min(start[1], tip[1]) - BOW
        text = f"M{start[0]:.1f},{start[1]:.1f} C{start[0]:.1f},{high:.1f} {tip[0]:.1f},{high:.1f}"
        label = _label(edge, (start[0] + tip[0]) / 2, high + BOW / 4)
        return _arrow(f"{text} {tip[0]:.1f},{tip[1] - 7:.1f}", tip, (0, 1), edge.look) + label
    start, tip = (a.x - a.width / 2, a.y), (b.x - b.width / 2, b.y)
    left = min(start[0], tip[0]) - BOW
    text = f"M{start[0]:.1f},{start[1]:.1f} C{left:.1f},{start[1]:.1f} {left:.1f},{tip[1]:.1f}"
    return _arrow(f"{text} {tip[0] - 7:.1f},{tip[1]:.1f}", tip, (1, 0), edge.look)


def _label(edge, x, y):
    text = html.escape(edge.look.get("label", ""))
    color = edge.look.get("color", INK)
    look = f'text-anchor="middle" font-size="{SIZE - 2}" fill="{color}"'
    return f'<text x="{x:.1f}" y="{y - 5:.1f}" {look}>{text}</text>' if text else ""


def _arrow(path, tip, along, look):
    """A curve and its head. along: the direction in which it arrives."""
    color = look.get("color", INK)
    dashes = ' stroke-dasharray="5 4"' if look.get("style") == "dashed" else ""
    line = f'<path d="{path}" fill="none" stroke="{color}" stroke-width="1.2"{dashes}/>'
    base = tip[0] - 8 * along[0], tip[1] - 8 * along[1]
    corners = [tip, *((base[0] + d * along[1], base[1] + d * along[0]) for d in (-3.5, 3.5))]
    head = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
    return f'{line}<polygon points="{head}" fill="{color}"/>'
