"""The stub that editors read lists every method of Tensor."""

import ast
import runpy
from pathlib import Path

from tinytorch.core.tensor import Tensor

ROOT = Path(__file__).resolve().parents[2]
STUB = ROOT / "tinytorch" / "core" / "tensor.pyi"


def test_the_stub_is_up_to_date():
    generated = runpy.run_path(str(ROOT / "docs" / "make_stub.py"))["stub_text"]()
    assert STUB.read_text(encoding="utf-8") == generated, "run: python docs/make_stub.py"


def test_the_stub_knows_methods_that_operations_attach():
    (cls,) = [n for n in ast.parse(STUB.read_text()).body if getattr(n, "name", "") == "Tensor"]
    methods = {node.name for node in cls.body if isinstance(node, ast.FunctionDef)}
    assert {"sum", "backward", "matmul", "__getitem__", "reshape", "register_hook"} <= methods
    assert methods <= set(dir(Tensor))
