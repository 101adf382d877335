"""Reads handwritten digits: python examples/train_digits.py

The 1,797 digits are inside the package, so nothing is downloaded; it takes a few seconds. The test
digits were written by people whose hands the network has not seen. Read this before train_mnist.py,
which adds what a longer training needs. With `torch` in place of `tinytorch` this is a PyTorch
program, apart from the digits.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # fastest for small products; before NumPy loads

import tinytorch
from tinytorch import nn
from tinytorch.datasets import Digits
from tinytorch.utils.data import DataLoader

tinytorch.manual_seed(0)
train_set, test_set = Digits(train=True), Digits(train=False)
loader = DataLoader(train_set, batch_size=50, shuffle=True)

model = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = tinytorch.optim.Adam(model.parameters(), lr=3e-3)

for epoch in range(1, 21):
    total = 0.0
    for images, labels in loader:
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    if epoch % 5 == 0:
        print(f"epoch {epoch:2}  loss {total / len(loader):.4f}")

with tinytorch.no_grad():
    images, labels = next(iter(DataLoader(test_set, batch_size=360)))
    answers = model(images).argmax(1)
print(f"{(answers == labels).float().mean().item():.1%} of the 360 test digits are read correctly")
