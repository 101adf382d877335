"""docs/trouble.md: its messages are those of the package, and the steps that it names are there."""

import re
from pathlib import Path

import numpy as np
import pytest

import tinytorch as torch
import tinytorch.nn.functional as F
from tinytorch import nn

PAGE = Path(__file__).resolve().parent.parent / "docs" / "trouble.md"
TEXT = PAGE.read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in row.strip("|").split(" | ")]
    for row in re.findall(r"^\| .*\|$", TEXT, re.M)
]


def leaf():
    return torch.ones(2, requires_grad=True)


def twice():
    loss = (leaf() * leaf()).sum()
    loss.backward()
    loss.backward()


def written_over():
    y = leaf().exp()
    y.add_(1)
    y.sum().backward()


def nan_in_backward():
    with torch.autograd.detect_anomaly():
        (leaf() - 1).sqrt().mul(0).sum().backward()


IMAGES = torch.zeros(32, 1, 8, 8)
SCORES = torch.zeros(4, 10)
CALLS = [
    lambda: nn.Linear(64, 10)(IMAGES),
    lambda: torch.zeros(3) + torch.zeros(4),
    lambda: nn.Conv2d(3, 8, 3)(IMAGES),
    lambda: F.cross_entropy(SCORES, torch.zeros(4, 1).long()),
    lambda: torch.zeros(2, 3).t().view(6),
    lambda: nn.BatchNorm1d(2)(torch.zeros(1, 2)),
    lambda: nn.Linear(2, 2)(torch.tensor(np.zeros((1, 2)))),
    lambda: F.cross_entropy(SCORES, torch.zeros(4)),
    lambda: F.cross_entropy(SCORES, torch.tensor([0, 1, 2, 10])),
    lambda: nn.Embedding(5, 2)(torch.tensor([5])),
    lambda: leaf().numpy(),
    twice,
    lambda: torch.ones(2).sum().backward(),
    lambda: leaf().mul(2).backward(),
    lambda: leaf().add_(1),
    written_over,
    nan_in_backward,
    lambda: torch.optim.SGD([], lr=0.1),
    lambda: torch.zeros(10**7, 10**7),
]


@pytest.mark.filterwarnings("ignore:Anomaly Detection", "ignore:Error detected in")
def test_the_messages_are_those_of_the_package():
    """Each first cell that is a message, and nothing else, is what one of the calls says."""
    messages = [row[0].strip("`") for row in ROWS if re.fullmatch("`[^`]+`", row[0])]
    said = ["ModuleNotFoundError: No module named 'tinytorch'"]
    for call in CALLS:
        with pytest.raises((RuntimeError, IndexError, ValueError)) as error:
            call()
        said.append(str(error.value))
    if not torch.cuda.is_available():
        with pytest.raises(RuntimeError) as error:
            IMAGES.cuda()
        said.append(str(error.value))
    else:
        messages = [each for each in messages if "CUDA" not in each]
    assert len(messages) == len(said)
    assert [each for each in messages if not any(each in line for line in said)] == []
    assert [line for line in said if not any(each in line for each in messages)] == []


def test_a_warning_that_is_quoted():
    (quoted,) = re.findall(r"a warning of `([^`]+)`", TEXT)
    with pytest.warns(UserWarning, match=re.escape(quoted)):
        F.mse_loss(torch.zeros(64, 1), torch.zeros(64))


def test_each_row_of_a_table_is_whole():
    assert len(ROWS) > 40 and {len(row) for row in ROWS} == {3, 4}


def test_the_steps_that_it_names_are_there():
    links = re.findall(r"\[(\w+)\]\((\.\./steps/[^)]+)\)", TEXT)
    assert len(links) > 40
    for name, target in links:
        assert (PAGE.parent / target).exists(), target
        assert Path(target).stem.removeprefix("step") == name
    assert (PAGE.parent / "../steps/step42.py").read_text().startswith('"""Step 42:')
