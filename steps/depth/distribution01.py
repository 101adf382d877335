"""Step distribution01: Categorical and REINFORCE: learning from draws

A network that plays, or that writes, draws its next move at random from probabilities that it
computes. Let its reward be r[move]. The draw is an integer: it has no derivative, and backward()
stops there. The demo shows it.

But the mean reward is a smooth function of the probabilities, J = sum_k p_k r_k, and its derivative
can be written as a mean again, because dp = p d(log p):

    dJ = sum_k r_k dp_k = sum_k p_k (r_k d(log p_k)) = the mean of r d(log p) over the draws

So draw a move, take its reward as a plain number, and follow the gradient of r * log p(move). Moves
that earned much become more probable. This is REINFORCE (Williams, 1992). It needs two methods of a
distribution: `sample`, and `log_prob` of what was drawn, which is differentiable.

The logits are normalised once: log p_k = z_k - log sum_j exp(z_j). That is the log_softmax of step
softmax07, and stays finite where exp would not.

The entropy -sum_k p_k log p_k says how undecided the distribution still is: log K if all are
equal, 0 if one is certain.

The trap: a single draw is a noisy estimate. One gradient in the demo is far from the true one; the
mean of many is not.

New: Categorical (PyTorch has it in torch.distributions).
Try: subtract 2 from all rewards. The mean gradient stays. Is it less noisy? Take estimate(1) 200
times, and compare how far its numbers spread.
"""

import importlib

from tinytorch.core.tensor import Tensor
from tinytorch.ops.sampling import multinomial
from tinytorch.ops.softmax import log_softmax

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class Categorical:
    """A class from 0 to K - 1. The last dimension of the parameter has the K classes.

    Args:
        logits: the logarithms of what the probabilities are in proportion to.
    """

    def __init__(self, logits: Tensor):
        self.logits = log_softmax(logits, -1)
        self.probs = logits.softmax(-1)

    def sample(self) -> Tensor:
        return multinomial(self.probs, 1, True).squeeze(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        return self.logits.gather(-1, value.long().unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        """-sum_k p_k log p_k."""
        return -(self.probs * self.logits).sum(-1)


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor
    from tinytorch.ops.creation import zeros
    from tinytorch.ops.random import manual_seed

    for module in ("autograd.backward", "core.printing"):
        importlib.import_module(f"tinytorch.{module}")

    manual_seed(0)
    rewards = tensor([1.0, 2.0, 5.0])
    logits = zeros(3, requires_grad=True)

    # A draw is not differentiable: the reward does not know where it came from.
    move = Categorical(logits).sample()
    print(move.shape, move.dtype, rewards[move].requires_grad)
    # -> tinytorch.Size([]) tinytorch.int64 False

    # The true gradient of the mean reward, from all moves at once.
    (Categorical(logits).probs * rewards).sum().backward()
    true = logits.grad
    print("true gradient ", [round(g, 2) for g in true.tolist()])
    # -> true gradient  [-0.56, -0.22, 0.78]

    # The same from draws. A player who does not know the rewards has nothing else.
    def estimate(plays):
        logits.grad = None
        for _ in range(plays):
            policy = Categorical(logits)
            move = policy.sample()
            (rewards[move] * policy.log_prob(move) / plays).backward()
        return [round(g, 2) for g in logits.grad.tolist()]

    print("from one play ", estimate(1), estimate(1))
    # -> from one play  [0.67, -0.33, -0.33] [0.67, -0.33, -0.33]
    print("from 2000     ", estimate(2000))  # -> from 2000      [-0.56, -0.24, 0.8]

    # A player that knows nothing of the rewards finds the best move.
    for play in range(300):
        policy = Categorical(logits)
        move = policy.sample()
        logits.grad = None
        (-rewards[move] * policy.log_prob(move)).backward()
        logits.data -= 0.05 * logits.grad
        if play % 100 == 99:
            chances = [round(p, 2) for p in policy.probs.tolist()]
            print(play + 1, chances, f"entropy {policy.entropy().item():.2f}")
    # -> 100 [0.03, 0.04, 0.93] entropy 0.30
    # -> 200 [0.01, 0.02, 0.97] entropy 0.14
    # -> 300 [0.01, 0.01, 0.98] entropy 0.10

    # Several distributions at once, and logits that exp could not take.
    many = Categorical(tensor([[0.0, 1000.0], [0.0, 0.0]]))
    print(many.sample()[0].item(), many.log_prob(tensor([1, 0])))  # -> 1 tensor([ 0.0000, -0.6931])
    print(many.entropy())  # -> tensor([-0.0000, 0.6931])
