"""Every function that the package takes from `xp` exists in CuPy too. It needs CuPy, and no GPU."""

import ast
import functools
import warnings
from pathlib import Path

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # CuPy warns where it finds no CUDA
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")

PACKAGE = Path(__file__).resolve().parents[2] / "tinytorch"


def names_of_xp(source):
    """The dotted names that a module reads from `xp` or from `something.xp`, with their lines."""
    tree = ast.parse(source)
    inner = {node.value for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or node in inner:
            continue  # of xp.linalg.norm, the whole is looked at and not its parts
        names, line = [], node.lineno
        while isinstance(node, ast.Attribute):
            names.insert(0, node.attr)
            node = node.value
        if isinstance(node, ast.Name):
            names.insert(0, node.id)
        if "xp" in names[:-1]:
            yield ".".join(names[names.index("xp") + 1 :]), line


def has(module, dotted):
    try:
        functools.reduce(getattr, dotted.split("."), module)
    except AttributeError:
        return False
    return True


def test_the_reader_of_names_reads_them():
    source = "xp.exp(a) + ctx.xp.add.at(b) + self.device.xp.linalg.norm(c) + np.sin(d) + e.xp"
    assert sorted(name for name, _ in names_of_xp(source)) == ["add.at", "exp", "linalg.norm"]


def test_cupy_has_every_name_that_the_package_uses():
    used = {
        f"{path.relative_to(PACKAGE)}:{line}: xp.{name}": name
        for path in sorted(PACKAGE.rglob("*.py"))
        for name, line in names_of_xp(path.read_text())
    }
    assert len(used) > 50
    missing = [place for place, name in used.items() if not has(cupy, name)]
    assert not missing, "CuPy lacks:\n" + "\n".join(missing)
