"""docs/trouble.md: the messages that it explains are those that the package raises, and its steps
say what it says of them."""

import re
import warnings
from pathlib import Path

import numpy as np
import pytest

import tinytorch as torch
from tinytorch import nn

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "trouble.md").read_text()
X, W = torch.ones(4, 3), torch.ones(3, requires_grad=True)


def overwritten():
    y = W.exp()
    y += 1
    y.sum().backward()


def twice():
    y = (W * W).sum()
    y.backward()
    y.backward()


def leaf():
    w = torch.ones(3, requires_grad=True)
    w += 1


MISTAKES = {
    "mat1 and mat2 shapes cannot be multiplied": lambda: X @ X,
    "The size of tensor a (3) must match the size of tensor b (4)": lambda: X + torch.ones(4),
    "shape '[5, 2]' is invalid for input of size 12": lambda: X.view(5, 2),
    "view size is not compatible": lambda: X.t().view(12),
    "stack expects each tensor to be equal size": lambda: torch.stack([X, X[1:]]),
    "expected m1 and m2 to have the same dtype": lambda: X @ torch.tensor(np.ones((3, 2))),
    "expected target dtype to be Long": lambda: nn.functional.cross_entropy(X, torch.ones(4)),
    "Expected dtype int32/int64 for index": lambda: nn.Embedding(5, 2)(torch.ones(2)),
    "Target 3 is out of bounds": lambda: nn.functional.cross_entropy(X, torch.arange(4)),
    "only Tensors of floating point dtype can require gradients": lambda: torch.tensor(
        [1, 2], requires_grad=True
    ),
    "does not require grad and does not have a grad_fn": lambda: X.sum().backward(),
    "grad can be implicitly created only for scalar outputs": lambda: (W * 2).backward(),
    "backward through the graph a second time": twice,
    "modified by an inplace operation": overwritten,
    "a leaf Variable that requires grad is being used in an in-place operation": leaf,
    "Can't call numpy() on Tensor that requires grad": lambda: W.numpy(),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_a_mistake_raises_the_message_that_the_page_explains(message):
    assert f"`{message}`" in PAGE
    with pytest.raises((RuntimeError, IndexError), match=re.escape(message)):
        MISTAKES[message]()


def test_a_gpu_that_is_not_there_is_named():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert "`No CUDA device is available`" in PAGE
    with pytest.raises(RuntimeError, match="No CUDA device is available"):
        X.to("cuda")


def test_a_target_that_broadcasts_warns():
    assert "`Using a target size`" in PAGE
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        nn.functional.mse_loss(torch.ones(4, 1), torch.ones(4))
    assert [str(each.message) for each in caught if "Using a target size" in str(each.message)]


def test_messages_of_the_tools_are_theirs():
    sources = [ROOT / "Makefile", ROOT / "steps/companion/cli.py", ROOT / "steps/step23b.py"]
    texts = " ".join(path.read_text() for path in sources)
    table = PAGE.split("## The machine")[1]
    quoted = re.findall(r"^\| `([^`]+)`", table, re.M)
    known = [each for each in quoted if each in texts]
    assert len(known) >= 4


def test_the_steps_that_it_names_are_there():
    from steps.companion.curriculum import Curriculum
    from steps.companion.number import Number

    known = Curriculum(ROOT).by_number
    rows = [row.split(" | ")[2] for row in PAGE.splitlines() if row.count(" | ") == 3]
    cells = [cell for cell in rows if cell.startswith("step ")]
    words = [each for cell in cells for each in cell.removeprefix("step ").split(", ")]
    words += re.findall(r"step (\d\d[a-z]?)", PAGE)
    assert len(words) > 50
    assert [each for each in words if Number.parse(each) not in known] == []


def test_its_links_and_commands_exist():
    assert "docs/trouble.md" in (ROOT / "README.md").read_text()
    for target in re.findall(r"\]\(([^)#]+)", PAGE):
        assert (ROOT / "docs" / target).exists()
