"""Step embedding01: embedding as a product with one-hot rows

Step 55b built the embedding, a table with a row for each letter. That it is a linear layer can be
seen if each number is written as a vector with a single 1:

    [0 0 1 0] @ W  =  row 2 of W                words [...] -> one-hot [..., n] -> rows [..., d]

The gradient of W is one_hot^T G, where G is the gradient of the result. Each row of G is added to
the row of W that was used at its place: a word that occurs twice gets two gradients, and the row of
a word that does not occur gets zeros.

The trap: a Linear without a bias does the same to a one-hot input, but its weight is the table
transposed, [outputs, inputs]. PyTorch has a layer of its own for it, nn.Embedding (step
embedding02).

New: embedding.
Try: give the words as floats, text.float(), and read the error: an index is an integer.
"""

import importlib

from tinytorch.core.arguments import checked
from tinytorch.core.tensor import Tensor
from tinytorch.nn.nll import one_hot

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


@checked
def embedding(input: Tensor, weight: Tensor) -> Tensor:
    """The rows of `weight` [n, d] at the indices `input` [...]: [..., d]."""
    return one_hot(input, len(weight)).to(weight.dtype) @ weight


if __name__ == "__main__":
    from tinytorch.autograd.backward import grad
    from tinytorch.core.tensor import tensor
    from tinytorch.nn.modules.loss import cross_entropy
    from tinytorch.ops.creation import zeros
    from tinytorch.ops.random import manual_seed, randn

    for module in "autograd.backward core.printing".split():
        importlib.import_module(f"tinytorch.{module}")

    words = "the cat saw the dog".split()
    vocabulary = sorted(set(words))
    print(vocabulary)  # -> ['cat', 'dog', 'saw', 'the']
    text = tensor([vocabulary.index(word) for word in words])
    print(text)  # -> tensor([3, 0, 2, 3, 1])

    # As numbers, "the" would be three times "dog". One-hot vectors are all equally far apart.
    print(one_hot(text[:2], 4))
    # -> tensor([[0, 0, 0, 1],
    # ->         [1, 0, 0, 0]])

    manual_seed(0)
    weight = randn(4, 3, requires_grad=True)
    rows = embedding(text, weight)
    print(rows.shape)  # -> tinytorch.Size([5, 3])
    print("row 3 twice:", bool((rows[0] == weight[3]).all()), bool((rows[3] == weight[3]).all()))
    # -> row 3 twice: True True

    # The gradient: "the" was used twice.
    rows.sum().backward()
    print(dict(zip(vocabulary, weight.grad[:, 0].tolist(), strict=True)))
    # -> {'cat': 1.0, 'dog': 1.0, 'saw': 1.0, 'the': 2.0}
    print(embedding(tensor([[0, 1], [2, 3]]), weight).shape)  # -> tinytorch.Size([2, 2, 3])

    # Which word follows which? The row of a word is learned as the scores of the next one.
    table = zeros(4, 4, requires_grad=True)
    for _ in range(50):
        loss = cross_entropy(embedding(text[:-1], table), text[1:])
        (gradient,) = grad(loss, table)
        table.data.sub_(gradient)
    for word, scores in zip(vocabulary, table.softmax(1).tolist(), strict=True):
        print(word, [f"{p:.2f}" for p in scores])
    # -> cat ['0.02', '0.02', '0.93', '0.02']
    # -> dog ['0.25', '0.25', '0.25', '0.25']
    # -> saw ['0.02', '0.02', '0.02', '0.93']
    # -> the ['0.48', '0.48', '0.02', '0.02']
