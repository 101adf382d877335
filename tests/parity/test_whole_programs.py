"""Whole trainings in the manner of well-known example programs, run under PyTorch and under
tinytorch from the same weights and on the same data: losses agree at every step, to rounding.

They were written for these tests. A program is a function of the library, and prints what it sees.
"""

import copy
import dataclasses
import importlib
import inspect
import io
import math
import tempfile
import warnings
from collections import deque, namedtuple

import numpy as np
import pytest

import tinytorch

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)

from tests.parity.test_programs import NUMBER, drawn, fill, printed  # noqa: E402

PROGRAMS = []


def program(*needed):
    """Registers a program that needs these names of nn."""

    def register(function):
        lacks = [name for name in needed if not hasattr(tinytorch.nn, name)]
        skip = pytest.mark.skipif(bool(lacks), reason=f"no {lacks} yet")
        PROGRAMS.append(pytest.param(function, id=function.__name__, marks=skip))
        return function

    return register


@pytest.mark.parametrize("function", PROGRAMS)
def test_every_loss_is_the_same(function):
    theirs, ours = printed(function, torch), printed(function, tinytorch)
    assert NUMBER.sub("#", ours) == NUMBER.sub("#", theirs)
    numbers = [[float(number) for number in NUMBER.findall(text)] for text in (ours, theirs)]
    assert len(numbers[0]) > 2
    np.testing.assert_allclose(*numbers, rtol=2e-4, atol=2e-6)


def whole_numbers(torch, high, *shape, seed=2):
    return torch.tensor(np.random.default_rng(seed).integers(0, high, shape))


def path(torch, name):
    """import torch.name"""
    return importlib.import_module(f"{torch.__name__}.{name}")


@program()
def a_checked_engine(torch):
    a = torch.Tensor([-4.0]).double()
    b = torch.Tensor([2.0]).double()
    a.requires_grad, b.requires_grad = True, True
    c = a * b + b**3
    c += c + 1 + (-a)
    d = (c * 2 + (b + a).relu()) / 3.0
    e = (d - a) ** 2 + 10.0 / d
    e.backward()
    print(e.data.item(), a.grad.item(), b.grad.item(), e.grad_fn is not None)


@program("Conv2d", "Dropout2d")
def digits_by_a_cnn(torch):
    nn, F = torch.nn, torch.nn.functional
    path(torch, "backends.cudnn").benchmark = True

    class Classifier(nn.Module):
        def __init__(self):
            super(Classifier, self).__init__()  # noqa: UP008 (as programs of 2017 write it)
            self.early = nn.Conv2d(1, 3, 3, 1)
            self.late = nn.Conv2d(3, 5, kernel_size=3, padding="same")
            self.drop = nn.Dropout2d(0.0)
            self.hidden, self.out = nn.Linear(5 * 5 * 5, 12), nn.Linear(12, 10)

        def forward(self, x):
            x = F.relu(self.late(F.relu(self.early(x))))
            x = torch.flatten(self.drop(F.max_pool2d(x, 2)), 1)
            return F.log_softmax(self.out(F.relu(self.hidden(x))), dim=1)

    device = torch.device("cpu")
    torch.manual_seed(1)
    model = fill(torch, Classifier()).to(device)
    optimizer = torch.optim.Adadelta(model.parameters(), lr=0.5)
    scheduler = path(torch, "optim.lr_scheduler").StepLR(optimizer, step_size=1, gamma=0.7)
    data = torch.utils.data.TensorDataset(drawn(torch, 24, 1, 12, 12), whole_numbers(torch, 10, 24))
    for _ in range(2):
        model.train()
        for number, (x, y) in enumerate(torch.utils.data.DataLoader(data, batch_size=8)):
            optimizer.zero_grad()
            loss = F.nll_loss(model(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
            print(f"{number * len(x)}/{len(data)}", loss.item())
        scheduler.step()
        model.eval()
        total = right = 0
        with torch.no_grad():
            for x, y in torch.utils.data.DataLoader(data, batch_size=12):
                scores = model(x)
                total += F.nll_loss(scores, y, reduction="sum").item()
                found = scores.argmax(dim=1, keepdim=True)
                right += found.eq(y.view_as(found)).sum().item()
        print(total / len(data), f"{100.0 * right / len(data):.0f}%", scheduler.get_last_lr())
    torch.save(model.state_dict(), io.BytesIO())


@program("LSTM", "BatchNorm1d")
def digits_row_by_row(torch):
    nn, F = torch.nn, torch.nn.functional

    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.rows = nn.LSTM(input_size=6, hidden_size=10, batch_first=True)
            self.norm = nn.BatchNorm1d(10)
            self.out = nn.Linear(10, 4)

        def forward(self, x):
            found, (last, cell) = self.rows(x.reshape(-1, 6, 6))
            return F.log_softmax(self.out(self.norm(found[:, -1, :])), dim=1), last, cell

    model = fill(torch, Reader())
    optimizer = torch.optim.Adadelta(model.parameters(), lr=0.3)
    for seed in range(3):
        answer, last, cell = model(drawn(torch, 8, 1, 6, 6, seed=seed))
        loss = F.nll_loss(answer, whole_numbers(torch, 4, 8, seed=seed))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item(), last.shape, cell.sum().item())
    print(model.norm.running_mean, model.norm.num_batches_tracked)


@program("ConvTranspose2d", "BatchNorm2d")
def a_painter_and_a_critic(torch):
    nn = torch.nn

    def start(module):
        name = module.__class__.__name__
        if "Conv" in name:
            nn.init.normal_(module.weight, 0.0, 0.02)
        elif name.find("BatchNorm") != -1:
            nn.init.normal_(module.weight, 1.0, 0.02)
            nn.init.zeros_(module.bias)

    painter = nn.Sequential(
        nn.ConvTranspose2d(5, 8, 3, 1, 0, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(True),
        nn.ConvTranspose2d(8, 1, 4, 2, 1, bias=False),
        nn.Tanh(),
    ).apply(start)
    critic = nn.Sequential(
        nn.Conv2d(1, 4, 4, 2, 1, bias=False),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(4, 1, 3, 1, 0, bias=False),
        nn.Sigmoid(),
    ).apply(start)
    fill(torch, painter, 1), fill(torch, critic, 2)
    print(painter, critic)
    criterion, optimizers = nn.BCELoss(), []
    for net in (painter, critic):
        optimizers.append(torch.optim.Adam(net.parameters(), lr=2e-3, betas=(0.5, 0.999)))
    for seed in range(3):
        critic.zero_grad()
        real = drawn(torch, 4, 1, 6, 6, seed=seed)
        label = torch.full((real.size(0),), 1, dtype=real.dtype, device=real.device)
        on_real = criterion(critic(real).view(-1, 1).squeeze(1), label)
        on_real.backward()
        fake = painter(drawn(torch, 4, 5, 1, 1, seed=seed + 10))
        on_fake = criterion(critic(fake.detach()).view(-1), label.fill_(0))
        on_fake.backward()
        optimizers[1].step()
        painter.zero_grad()
        fooled = criterion(critic(fake).view(-1), label.fill_(1))
        fooled.backward()
        optimizers[0].step()
        print(on_real.item(), on_fake.item(), fooled.item())


@program()
def layers_that_train_themselves(torch):
    nn = torch.nn

    class Local(nn.Linear):
        def __init__(self, inputs, outputs, bias=True, device=None, dtype=None):
            super().__init__(inputs, outputs, bias, device, dtype)
            fill(torch, self)
            self.opt, self.threshold = torch.optim.Adam(self.parameters(), lr=0.03), 2.0

        def forward(self, x):
            direction = x / (x.norm(2, 1, keepdim=True) + 1e-4)
            return torch.relu(torch.mm(direction, self.weight.T) + self.bias.unsqueeze(0))

        def learn(self, good, bad):
            for _ in range(3):
                up, down = (self(x).pow(2).mean(1) for x in (good, bad))
                margins = torch.cat([-up + self.threshold, down - self.threshold])
                loss = torch.log(1 + torch.exp(margins)).mean()
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                print(loss.item())
            return self(good).detach(), self(bad).detach()

    def marked(x, y):
        x = x.clone()
        x[:, :3] *= 0.0
        x[range(x.shape[0]), y] = x.max()
        return x

    x, y = drawn(torch, 12, 9).abs(), torch.arange(12) % 3
    good, bad = marked(x, y), marked(x, y.flip(0))
    layers = [Local(9, 7), Local(7, 5)]
    for layer in layers:
        good, bad = layer.learn(good, bad)
    scores = []
    for label in range(3):
        h, goodness = marked(x, label), []
        for layer in layers:
            h = layer(h)
            goodness = goodness + [h.pow(2).mean(1)]
        scores += [sum(goodness).unsqueeze(1)]
    print(torch.cat(scores, 1).argmax(1).eq(y).float().mean().item() <= 1, scores[1][0])


@program("LSTM", "GRU", "RNN", "Embedding")
def words_by_recurrent_networks(torch):
    nn, F = torch.nn, torch.nn.functional

    class Words(nn.Module):
        def __init__(self, kind, words, size, layers):
            super().__init__()
            self.table = nn.Embedding(words, size)
            extra = {} if kind != "RNN" else {"nonlinearity": "relu"}
            self.net = getattr(nn, kind)(size, size, layers, dropout=0.0, **extra)
            self.out = nn.Linear(size, words)
            self.out.weight = self.table.weight
            self.kind, self.size, self.layers = kind, size, layers

        def forward(self, words, state):
            found, state = self.net(self.table(words), state)
            return F.log_softmax(self.out(found).view(-1, self.out.out_features), 1), state

        def start(self, batch):
            zeros = next(self.parameters()).new_zeros(self.layers, batch, self.size)
            return (zeros, zeros.clone()) if self.kind == "LSTM" else zeros

    def cut(state):
        if isinstance(state, torch.Tensor):
            return state.detach()
        return tuple(cut(part) for part in state)

    ids = whole_numbers(torch, 7, 125).type(torch.int64)
    count = ids.size(0) // 4
    columns = ids.narrow(0, 0, count * 4).view(4, -1).t().contiguous()
    for kind in ("LSTM", "GRU", "RNN"):
        model = fill(torch, Words(kind, 7, 6, 2))
        model.net.flatten_parameters()
        state = model.start(4)
        for begin in range(0, columns.size(0) - 1, 10):
            length = min(10, len(columns) - 1 - begin)
            target = columns[begin + 1 : begin + 1 + length].view(-1)
            model.zero_grad()
            answer, state = model(columns[begin : begin + length], cut(state))
            loss = F.nll_loss(answer, target)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            for p in model.parameters():
                p.data.add_(p.grad, alpha=-2.0)
            print(kind, loss.item(), math.exp(loss.item()))
        with torch.no_grad():
            word = torch.randint(7, (1, 1), dtype=torch.long).fill_(3)
            answer, _ = model(word, model.start(1))
            weights = answer.squeeze().div(0.8).exp().cpu()
            word.fill_(torch.multinomial(weights, 1)[0])
            print(weights)


@program("Transformer", "TransformerEncoder", "Embedding")
def words_by_a_transformer(torch):
    nn, F = torch.nn, torch.nn.functional

    class Places(nn.Module):
        def __init__(self, size, longest=30):
            super().__init__()
            place = torch.arange(0, longest, dtype=torch.float).unsqueeze(1)
            rate = torch.exp(torch.arange(0, size, 2).float() * (-math.log(10000.0) / size))
            table = torch.zeros(longest, size)
            table[:, 0::2], table[:, 1::2] = torch.sin(place * rate), torch.cos(place * rate)
            self.register_buffer("table", table.unsqueeze(0).transpose(0, 1))

        def forward(self, x):
            return x + self.table[: x.size(0), :]

    class Model(nn.Transformer):
        def __init__(self):
            super().__init__(8, 2, num_encoder_layers=2, dim_feedforward=12, dropout=0.0)
            self.words, self.places, self.out = nn.Embedding(7, 8), Places(8), nn.Linear(8, 7)

        def forward(self, x):
            future = torch.log(torch.tril(torch.ones(len(x), len(x))))
            x = self.encoder(self.places(self.words(x) * math.sqrt(8)), mask=future)
            return F.log_softmax(self.out(x), dim=-1)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = fill(torch, Model())
    for seed in range(3):
        words = whole_numbers(torch, 7, 6, 3, seed=seed)
        loss = F.nll_loss(model(words[:-1]).view(-1, 7), words[1:].view(-1))
        model.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        for p in model.parameters():
            if p.grad is not None:  # the decoder is not used
                p.data.add_(p.grad, alpha=-0.5)
        print(loss.item())


@program()
def a_policy_from_its_rewards(torch):
    nn, F = torch.nn, torch.nn.functional
    categorical = path(torch, "distributions").Categorical
    chance = np.random.default_rng(4)

    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.outer, self.value = nn.Linear(4, 9), nn.Linear(9, 2), nn.Linear(9, 1)

        def forward(self, x):
            h = F.relu(self.inner(x))
            return F.softmax(self.outer(h), dim=-1), self.value(h)

    policy = fill(torch, Policy())
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-2)
    Taken = namedtuple("Taken", ["log_prob", "value"])
    for _ in range(3):
        taken, rewards, later = [], [], deque()
        for _ in range(6):
            probs, value = policy(torch.from_numpy(chance.normal(size=4)).float())
            moves = categorical(probs)
            assert moves.sample().item() in (0, 1)
            taken.append(Taken(moves.log_prob(torch.tensor(int(chance.integers(2)))), value))
            rewards.append(float(chance.random()))
        total = 0
        for reward in rewards[::-1]:
            total = reward + 0.99 * total
            later.appendleft(total)
        goals = torch.tensor(later)
        goals = (goals - goals.mean()) / (goals.std() + np.finfo(np.float32).eps.item())
        losses, errors = [], []
        for (log_prob, value), goal in zip(taken, goals, strict=True):
            losses.append(-log_prob * (goal - value.item()))
            errors.append(F.smooth_l1_loss(value, goal.reshape(1)))
        loss = torch.stack(losses).sum() + torch.stack(errors).sum() - 0.01 * moves.entropy()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item(), moves)


@program()
def a_policy_that_moves_in_small_steps(torch):
    nn = torch.nn
    normal = path(torch, "distributions.normal").Normal

    def started(layer, std):
        torch.nn.init.orthogonal_(layer.weight, std)
        torch.nn.init.constant_(layer.bias, 0.0)
        return layer

    class Agent(nn.Module):
        def __init__(self):
            super().__init__()
            self.critic = nn.Sequential(started(nn.Linear(4, 8), np.sqrt(2)), nn.Linear(8, 1))
            self.actor = nn.Sequential(started(nn.Linear(4, 8), 1.0), nn.Tanh(), nn.Linear(8, 2))
            self.log_std = nn.Parameter(torch.zeros(1, 2))

        def act(self, x, action=None):
            mean = self.actor(x)
            d = normal(mean, torch.exp(self.log_std.expand_as(mean)))
            action = d.sample() if action is None else action
            return action, d.log_prob(action).sum(1), d.entropy().sum(1), self.critic(x)

    agent = fill(torch, Agent())
    optimizer = torch.optim.Adam(agent.parameters(), lr=3e-3, eps=1e-5)
    states, rewards = torch.zeros((5, 3) + (4,)), drawn(torch, 5, 3, seed=8)
    actions, logs, values = torch.zeros(5, 3, 2), torch.zeros(5, 3), torch.zeros(5, 3)
    for t in range(5):
        states[t] = drawn(torch, 3, 4, seed=t)
        agent.act(states[t])
        with torch.no_grad():
            action, log, _, value = agent.act(states[t], drawn(torch, 3, 2, seed=t + 20))
        actions[t], logs[t], values[t] = action, log, value.flatten()
    gains, last = torch.zeros_like(rewards), 0
    with torch.no_grad():
        after = agent.critic(states[0]).reshape(1, -1)
        for t in reversed(range(5)):
            delta = rewards[t] + 0.99 * (after if t == 4 else values[t + 1]) - values[t]
            gains[t] = last = delta + 0.99 * 0.95 * last
    goals = (gains + values).reshape(-1)
    flat = states.reshape((-1, 4)), actions.reshape((-1, 2)), logs.reshape(-1), gains.reshape(-1)
    for batch in np.array_split(np.arange(15), 3):
        x, action, old, gain = (part[batch] for part in flat)
        _, new, entropy, value = agent.act(x, action)
        ratio = (new - old).exp()
        far = ((ratio - 1.0).abs() > 0.2).float().mean().item()
        gain = (gain - gain.mean()) / (gain.std() + 1e-8)
        policy = torch.max(-gain * ratio, -gain * torch.clamp(ratio, 0.8, 1.2)).mean()
        error = 0.5 * ((value.view(-1) - goals[batch]) ** 2).mean()
        loss = policy - 0.01 * entropy.mean() + 0.5 * error
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        optimizer.step()
        print(loss.item(), error.item(), far)


@program()
def values_from_a_memory(torch):
    nn = torch.nn
    Move = namedtuple("Move", ("state", "action", "after", "reward"))
    memory, chance = deque([], maxlen=12), np.random.default_rng(0)
    for i in range(15):
        after = None if i % 4 == 0 else drawn(torch, 1, 4, seed=i)
        action = torch.tensor([[int(chance.integers(2))]], dtype=torch.long)
        reward = torch.tensor([float(chance.random())])
        memory.append(Move(drawn(torch, 1, 4, seed=50 + i), action, after, reward))
    net, slow = fill(torch, nn.Linear(4, 2)), nn.Linear(4, 2)
    slow.load_state_dict(net.state_dict())
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2, amsgrad=False)
    for _ in range(3):
        batch = Move(*zip(*list(memory)[:10], strict=True))
        goes_on = torch.tensor(tuple(x is not None for x in batch.after), dtype=torch.bool)
        best = torch.zeros(10)
        with torch.no_grad():
            best[goes_on] = slow(torch.cat([x for x in batch.after if x is not None])).max(1).values
        taken = net(torch.cat(batch.state)).gather(1, torch.cat(batch.action))
        goal = (best * 0.9 + torch.cat(batch.reward)).unsqueeze(1)
        loss = nn.SmoothL1Loss()(taken, goal)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_value_(net.parameters(), 0.1)
        optimizer.step()
        mixed, fresh = slow.state_dict(), net.state_dict()
        for name in fresh:
            mixed[name] = fresh[name] * 0.1 + mixed[name] * 0.9
        slow.load_state_dict(mixed)
        print(loss.item(), net.weight.grad, slow.bias)
    print(net(memory[0].state).max(1).indices.view(1, 1), net(memory[1].state).max(1)[0])


@program("LSTMCell")
def waves_that_go_on(torch):
    nn = torch.nn

    class Waves(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LSTMCell(1, 6), nn.LSTMCell(6, 6)
            self.out = nn.Linear(6, 1)

        def forward(self, x, future=0):
            state = [torch.zeros(x.size(0), 6, dtype=torch.double) for _ in range(4)]
            outputs = []
            steps = list(x.split(1, dim=1)) + [None] * future
            for value in steps:
                value = outputs[-1] if value is None else value
                state[0], state[1] = self.first(value, (state[0], state[1]))
                state[2], state[3] = self.second(state[0], (state[2], state[3]))
                outputs += [self.out(state[2])]
            return torch.cat(outputs, dim=1)

    phases = np.arange(5).reshape(5, 1)
    waves = torch.from_numpy(np.sin(np.arange(14) / 3.0 + phases).astype("float64"))
    model, criterion = fill(torch, Waves()), nn.MSELoss()
    model.double()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.8, max_iter=8)
    for _ in range(2):

        def closure():
            optimizer.zero_grad()
            loss = criterion(model(waves[2:, :-1]), waves[2:, 1:])
            loss.backward()
            print("loss:", loss.item())
            return loss

        optimizer.step(closure)
        with torch.no_grad():
            told = model(waves[:2, :-1], future=4)
            print(criterion(told[:, :-4], waves[:2, 1:]).item(), told.detach().numpy().shape)


@program("Conv2d", "PixelShuffle")
def a_larger_picture(torch):
    nn, init = torch.nn, path(torch, "nn.init")
    model = nn.Sequential(
        nn.Conv2d(1, 6, (5, 5), (1, 1), (2, 2)),
        nn.ReLU(),
        nn.Conv2d(6, 3**2, (3, 3), (1, 1), (1, 1)),
        nn.PixelShuffle(3),
    )
    init.orthogonal_(model[0].weight, init.calculate_gain("relu"))
    fill(torch, model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for seed in range(3):
        optimizer.zero_grad()
        large = drawn(torch, 2, 1, 12, 12, seed=seed)
        loss = nn.MSELoss()(model(large[:, :, ::3, ::3]), large)
        loss.backward()
        optimizer.step()
        print(loss.item(), 10 * math.log10(1 / loss.item()))


@program()
def a_curve_by_hand_and_by_optimizer(torch):
    F = torch.nn.functional
    true = torch.tensor([[1.0], [-2.0], [0.5]])
    line = fill(torch, torch.nn.Linear(true.size(0), 1))
    for seed in range(4):
        x = drawn(torch, 10, seed=seed).unsqueeze(1)
        x = torch.cat([x**i for i in range(1, 4)], 1)
        line.zero_grad()
        error = F.smooth_l1_loss(line(x), x.mm(true) + 0.3)
        error.backward()
        for p in line.parameters():
            p.data.add_(-0.1 * p.grad)
        print(error.item(), line.weight.view(-1), line.bias)

    class Series(torch.nn.Module):
        def __init__(self):
            super().__init__()
            for name in "abcd":
                setattr(self, name, torch.nn.Parameter(torch.tensor(0.1)))

        def forward(self, x):
            y = self.a + self.b * x + self.c * x**2
            for power in range(3, 5):
                y = y + self.d * x**power
            return y

    x = torch.linspace(-math.pi, math.pi, 50)
    model = Series()
    for make in (torch.optim.SGD, torch.optim.RMSprop):
        optimizer = make(model.parameters(), lr=1e-5)
        for _ in range(3):
            loss = torch.nn.MSELoss(reduction="sum")(model(x), torch.sin(x))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(loss.item(), f"y = {model.a.item():.5f} + {model.b.item():.5f} x")


@program("Conv2d")
def what_a_first_tutorial_shows_of_the_graph(torch):
    nn, F = torch.nn, torch.nn.functional

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(1, 3, 5), nn.Conv2d(3, 4, 5)
            self.fc1, self.fc2 = nn.Linear(4 * 5 * 5, 12), nn.Linear(12, 10)

        def forward(self, x):
            x = F.max_pool2d(F.relu(self.conv1(x)), (2, 2))
            x = torch.flatten(F.max_pool2d(F.relu(self.conv2(x)), 2), 1)
            return self.fc2(F.relu(self.fc1(x)))

    net, x = fill(torch, Net()), drawn(torch, 1, 1, 32, 32)
    print(net, len(list(net.parameters())), next(net.parameters()).size())
    net(x).backward(torch.ones(1, 10))
    print(net.conv1.bias.grad)
    target = torch.arange(10.0).view(1, -1)
    loss = nn.MSELoss()(net(x), target)
    node = loss.grad_fn
    for _ in range(3):
        print(str(node).partition(" ")[0], node.name())
        node = node.next_functions[0][0] if node.next_functions else None
    largest, place = net(x).max(1)
    print(largest.grad_fn.name(), net(x).max().grad_fn.name(), place)
    net.zero_grad()
    print(net.conv1.bias.grad)
    loss.backward()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    optimizer.step()
    print(loss, nn.MSELoss()(net(x), target).item())


@program("Conv2d", "BatchNorm2d", "AdaptiveAvgPool2d")
def a_residual_network_with_a_new_head(torch):
    nn = torch.nn
    model_of = path(torch, "nn.modules.batchnorm")

    class Block(nn.Module):
        def __init__(self, inputs, outputs, stride=1):
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
            self.bn1, self.relu = nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
            self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, groups=2, bias=False)
            self.shortcut = nn.Identity()
            if stride > 1:
                shrink = nn.Conv2d(inputs, outputs, kernel_size=1, stride=stride, bias=False)
                self.shortcut = nn.Sequential(shrink, nn.BatchNorm2d(outputs))

        def forward(self, x):
            y = self.conv2(self.relu(self.bn1(self.conv1(x))))
            y += self.shortcut(x)
            return self.relu(y)

    model = nn.Sequential(
        nn.Conv2d(3, 4, 7, stride=2, padding=3),
        nn.MaxPool2d(kernel_size=3, stride=2, padding=1),
        Block(4, 4),
        Block(4, 8, stride=2),
        nn.AdaptiveAvgPool2d((1, 1)),
        nn.Flatten(),
        nn.Linear(8, 5),
    )
    for m in model.modules():
        if isinstance(m, nn.Conv2d):
            nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(m, model_of.BatchNorm2d):
            nn.init.constant_(m.weight, 1)
    fill(torch, model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for seed in range(3):
        loss = nn.CrossEntropyLoss()(
            model(drawn(torch, 3, 3, 32, 32, seed=seed)), whole_numbers(torch, 5, 3, seed=seed)
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())
    best = copy.deepcopy(model.state_dict())
    for p in model.parameters():
        p.requires_grad = False
    model[6] = fill(torch, nn.Linear(model[6].in_features, 2))
    print(sum(p.numel() for p in model.parameters() if p.requires_grad), len(best))
    model.eval()
    print(model(drawn(torch, 2, 3, 32, 32)).detach(), model[3].bn1.running_var)


@program("Embedding", "LayerNorm")
def six_ways_to_write_names(torch):
    nn, F = torch.nn, torch.nn.functional
    names = ["anna", "otto", "ida", "emil", "lea", "nora"]
    letters = sorted(set("".join(names)))
    number = {letter: i + 1 for i, letter in enumerate(letters)}
    count, size, longest = len(letters) + 1, 8, 5

    class Names(path(torch, "utils.data").Dataset):
        def __len__(self):
            return len(names)

        def __getitem__(self, i):
            code = torch.tensor([number[letter] for letter in names[i]], dtype=torch.long)
            x, y = (torch.zeros(longest, dtype=torch.long) for _ in range(2))
            x[1 : 1 + len(code)] = code
            y[: len(code)] = code
            y[len(code) + 1 :] = -1
            return x, y

    class Writer(nn.Module):
        def forward(self, x, y=None):
            scores = self.scores(x)
            flat = scores.view(-1, scores.size(-1))
            loss = None if y is None else F.cross_entropy(flat, y.view(-1), ignore_index=-1)
            return scores, loss

    class Pairs(Writer):
        def __init__(self):
            super().__init__()
            self.table = nn.Parameter(torch.zeros((count, count)))

        def scores(self, x):
            return self.table[x]

    class Window(Writer):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(count + 1, size)
            self.net = nn.Sequential(nn.Linear(3 * size, 9), nn.Tanh(), nn.Linear(9, count))

        def scores(self, x):
            parts = []
            for _ in range(3):
                parts.append(self.table(x))
                x = torch.roll(x, 1, 1)
                x[:, 0] = count
            return self.net(torch.cat(parts, -1))

    class Memory(Writer):
        def __init__(self, gated):
            super().__init__()
            self.first = nn.Parameter(torch.zeros(1, size))
            self.table, self.out = nn.Embedding(count, size), nn.Linear(size, count)
            self.new = nn.Linear(2 * size, size)
            self.gate = nn.Linear(2 * size, size) if gated else None

        def scores(self, x):
            h, states = self.first.expand((x.size(0), -1)), []
            for i in range(x.size(1)):
                both = torch.cat([self.table(x)[:, i, :], h], dim=1)
                new = F.tanh(self.new(both))
                z = 1.0 if self.gate is None else F.sigmoid(self.gate(both))
                h = (1 - z) * h + z * new
                states.append(h)
            return self.out(torch.stack(states, 1))

    class Mean(Writer):
        def __init__(self):
            super().__init__()
            self.table, self.out = nn.Embedding(count, size), nn.Linear(size, count)
            seen = torch.tril(torch.ones(longest, longest))
            self.register_buffer("seen", seen.view(1, longest, longest))

        def scores(self, x):
            b, t = x.size()
            weights = torch.zeros((b, t, t)).masked_fill(self.seen[:, :t, :t] == 0, float("-inf"))
            return self.out(F.softmax(weights, dim=-1) @ self.table(x))

    class Attention(Writer):
        def __init__(self):
            super().__init__()
            parts = {"words": nn.Embedding(count, size), "places": nn.Embedding(longest, size)}
            self.parts = nn.ModuleDict(dict(**parts, norm=nn.LayerNorm(size)))
            self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, count, bias=False)

        def scores(self, x):
            b, t = x.size()
            place = torch.arange(0, t, dtype=torch.long, device=x.device).unsqueeze(0)
            h = self.parts.words(x) + self.parts.places(place)
            q, k, v = self.qkv(self.parts.norm(h)).split(size, dim=2)
            q, k, v = (y.view(b, t, 2, size // 2).transpose(1, 2) for y in (q, k, v))
            weights = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            future = torch.triu(torch.ones(t, t), diagonal=1).bool()
            weights = F.softmax(weights.masked_fill(future, float("-inf")), dim=-1)
            h = h + (weights @ v).transpose(1, 2).contiguous().view(b, t, size)
            return self.out(0.5 * h * (1.0 + torch.tanh(0.8 * (h + 0.04 * torch.pow(h, 3.0)))))

    @torch.inference_mode()
    def judged(model):
        model.eval()
        losses = [model(*batch)[1].item() for batch in loader(data, shuffle=True, batch_size=6)]
        model.train()
        return torch.tensor(losses).mean().item()

    @torch.no_grad()
    def written(model, x, steps, top):
        for _ in range(steps):
            scores = model(x[:, -longest:])[0][:, -1, :] / 0.9
            least, _ = torch.topk(scores, top)
            scores[scores < least[:, [-1]]] = -float("Inf")
            probs = F.softmax(scores, dim=-1)
            torch.multinomial(probs, num_samples=1)
            x = torch.cat((x, torch.topk(probs, k=1, dim=-1)[1]), dim=1)
        return x

    data, loader = Names(), path(torch, "utils.data.dataloader").DataLoader
    endless = torch.utils.data.RandomSampler(data, replacement=True, num_samples=int(1e10))
    print([part.shape for part in next(iter(loader(data, sampler=endless, batch_size=4)))])
    for make in (Pairs, Window, lambda: Memory(False), lambda: Memory(True), Mean, Attention):
        model = fill(torch, make())
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=1e-2, weight_decay=0.01, betas=(0.9, 0.99), eps=1e-8
        )
        for x, y in loader(data, batch_size=2):
            _, loss = model(x, y)
            model.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            print(loss.item())
        print(judged(model), written(model, torch.zeros(2, 1, dtype=torch.long), 4, 3).tolist())


@program("Embedding", "LayerNorm")
def a_gpt_that_adds(torch):
    nn, F = torch.nn, torch.nn.functional

    class Layer(nn.Module):
        def __init__(self, size, longest):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(size), nn.LayerNorm(size)
            self.qkv, self.c_proj = nn.Linear(size, 3 * size), nn.Linear(size, size)
            wide = {"grow": nn.Linear(size, 2 * size), "shrink": nn.Linear(2 * size, size)}
            self.mlp = nn.ModuleDict({**wide, "act": nn.GELU()})
            mask = torch.tril(torch.ones(longest, longest)).view(1, longest, longest)
            self.register_buffer("bias", mask)

        def forward(self, x):
            t = x.size(1)
            q, k, v = self.qkv(self.ln_1(x)).chunk(3, dim=-1)
            weights = torch.bmm(q, k.transpose(1, 2)) / k.size(-1) ** 0.5
            weights = weights.masked_fill(self.bias[:, :t, :t] == 0, float("-inf"))
            x = x + self.c_proj(F.softmax(weights, dim=-1) @ v)
            return x + self.mlp.shrink(self.mlp.act(self.mlp["grow"](self.ln_2(x))))

    class Adder(nn.Module):
        def __init__(self, size=8, longest=6):
            super().__init__()
            self.words, self.places = nn.Embedding(10, size), nn.Embedding(longest, size)
            self.layers = nn.ModuleList([Layer(size, longest) for _ in range(2)])
            self.norm, self.out = nn.LayerNorm(size), nn.Linear(size, 10, bias=False)
            self.apply(self.start)
            for name, p in self.named_parameters():
                if name.endswith("c_proj.weight"):
                    torch.nn.init.normal_(p, mean=0.0, std=0.02 / math.sqrt(4))

        def start(self, module):
            if isinstance(module, (nn.Linear, nn.Embedding)):
                torch.nn.init.normal_(module.weight, mean=0.0, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                torch.nn.init.zeros_(module.bias)
            if isinstance(module, nn.LayerNorm):
                torch.nn.init.ones_(module.weight)

        def forward(self, x):
            x = self.words(x) + self.places(torch.arange(x.size(1), device=x.device))
            for layer in self.layers:
                x = layer(x)
            return self.out(self.norm(x))

    def problem(i):
        a, b = divmod(i, 100)
        digits = [int(d) for d in f"{a:02d}{b:02d}" + f"{a + b:03d}"[::-1]]
        target = torch.tensor(digits[1:], dtype=torch.long)
        target[:3] = -1
        return torch.tensor(digits[:-1], dtype=torch.long), target

    generator = torch.Generator()
    generator.manual_seed(1337)
    assert torch.randperm(10000, generator=generator)[:5].nelement() == 5
    model = fill(torch, Adder())
    decayed, others = set(), set()
    for module_name, module in model.named_modules():
        for name, _ in module.named_parameters():
            full = f"{module_name}.{name}" if module_name else name
            if name.endswith("bias") or isinstance(module, (nn.LayerNorm, nn.Embedding)):
                others.add(full)
            elif name.endswith("weight") and isinstance(module, (torch.nn.Linear,)):
                decayed.add(full)
    named = dict(model.named_parameters())
    assert named.keys() == decayed | others
    groups = [
        {"params": [named[name] for name in sorted(decayed)], "weight_decay": 0.1},
        {"params": [named[name] for name in sorted(others)], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95))
    loader = torch.utils.data.DataLoader([problem(37 * i) for i in range(64)], batch_size=16)
    for x, y in loader:
        scores = model(x)
        loss = F.cross_entropy(scores.view(-1, 10), y.view(-1), ignore_index=-1)
        model.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(loss.item())
    model.eval()
    place = torch.tensor([[10**i for i in range(3)][::-1]])
    found = x[:, :4]
    with torch.no_grad():
        for _ in range(3):
            found = torch.cat((found, model(found)[:, -1, :].argmax(-1, keepdim=True)), dim=1)
    a, b = ((x[:, i : i + 2] * place[:, 1:]).sum(1) for i in (0, 2))
    right = ((found[:, -3:].flip(1) * place).sum(1) == a + b).cpu()
    share = torch.tensor([int(each) for each in right], dtype=torch.float)
    print(found[0].tolist(), f"{int(torch.sum(share)):d}/{len(share)} {100 * share.mean():.1f}%")


@program("Embedding", "LayerNorm", "MultiheadAttention")
def a_gpt_from_a_mapped_file_that_is_resumed(torch):
    nn, F = torch.nn, torch.nn.functional

    @dataclasses.dataclass
    class Config:
        block_size: int = 8
        vocab_size: int = 20
        n_embd: int = 8
        bias: bool = False

    class Norm(nn.Module):
        def __init__(self, size, bias):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(size))
            self.bias = nn.Parameter(torch.zeros(size)) if bias else None

        def forward(self, x):
            return F.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)

    class GPT(nn.Module):
        def __init__(self, config):
            super().__init__()
            self.config, size = config, config.n_embd
            self.words = nn.Embedding(config.vocab_size, size)
            self.places = nn.Embedding(config.block_size, size)
            self.norm, self.last = Norm(size, config.bias), Norm(size, bias=True)
            self.qkv = nn.Linear(size, 3 * size, bias=config.bias)
            self.out = nn.Linear(size, config.vocab_size, bias=False)
            self.words.weight = self.out.weight

        def forward(self, x, y=None):
            b, t = x.size()
            h = self.words(x) + self.places(torch.arange(0, t, dtype=torch.long, device=x.device))
            parts = self.qkv(self.norm(h)).split(self.config.n_embd, dim=2)
            q, k, v = (part.view(b, t, 2, -1).transpose(1, 2) for part in parts)
            seen = F.scaled_dot_product_attention(
                q, k, v, attn_mask=None, dropout_p=0, is_causal=True
            )
            h = self.last(h + seen.transpose(1, 2).contiguous().view(b, t, -1))
            if y is None:
                return self.out(h[:, [-1], :]), None
            scores = self.out(h)
            flat = scores.view(-1, scores.size(-1))
            return scores, F.cross_entropy(flat, y.view(-1), ignore_index=-1)

        def shorten(self, length):
            self.config.block_size = length
            self.places.weight = nn.Parameter(self.places.weight[:length])

    def optimizer_of(model):
        params = {name: p for name, p in model.named_parameters() if p.requires_grad}
        groups = [
            {"params": [p for p in params.values() if p.dim() >= 2], "weight_decay": 0.1},
            {"params": [p for p in params.values() if p.dim() < 2], "weight_decay": 0.0},
        ]
        assert "fused" in inspect.signature(torch.optim.AdamW).parameters
        return torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95))

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    chance = np.random.default_rng(0)
    file = io.BytesIO()
    file.write(chance.integers(0, 20, 200).astype(np.uint16).tobytes())

    def batch(folder):
        data = np.memmap(folder, dtype=np.uint16, mode="r")
        starts = torch.tensor(chance.integers(0, len(data) - 9, 4))
        x = torch.stack([torch.from_numpy((data[i : i + 8]).astype(np.int64)) for i in starts])
        y = torch.stack([torch.from_numpy((data[i + 1 : i + 9]).astype(np.int64)) for i in starts])
        return x.to("cpu"), y.to("cpu")

    def train(model, optimizer, steps, name):
        for step in range(steps):
            for group in optimizer.param_groups:
                group["lr"] = 1e-2 * 0.5 * (1.0 + math.cos(math.pi * step / 5))
            for _ in range(2):
                _, loss = model(*batch(name))
                (loss / 2).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            print(loss.item())

    @torch.no_grad()
    def estimate(model, name):
        model.eval()
        losses = torch.zeros(3)
        for k in range(3):
            losses[k] = model(*batch(name))[1].item()
        model.train()
        return losses.mean()

    with tempfile.NamedTemporaryFile() as mapped:
        mapped.write(file.getvalue())
        mapped.flush()
        model = fill(torch, GPT(Config()))
        optimizer = optimizer_of(model)
        train(model, optimizer, 3, mapped.name)
        kept = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "iter_num": 3}
        kept |= {"best": estimate(model, mapped.name), "config": dataclasses.asdict(model.config)}
        saved = io.BytesIO()
        torch.save(kept, saved)
        saved.seek(0)
        kept = torch.load(saved, map_location="cpu")
        print(kept["best"], kept["config"], kept["iter_num"])
        again = GPT(Config(**kept["config"]))
        state = kept["model"]
        for name in list(state):
            if name.startswith("_orig_mod."):
                state[name[len("_orig_mod.") :]] = state.pop(name)
        print(again.load_state_dict(state))
        optimizer = optimizer_of(again)
        optimizer.load_state_dict(kept["optimizer"])
        train(again, optimizer, 2, mapped.name)
    again.eval()
    again.shorten(4)
    print(again(torch.tensor([[1, 2, 3]], dtype=torch.long)[:, -4:])[0])


@program("GRU", "Embedding")
def a_translation_with_attention(torch):
    nn, F = torch.nn, torch.nn.functional

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.gru = nn.Embedding(9, 6), nn.GRU(6, 6, batch_first=True)

        def forward(self, x):
            return self.gru(self.words(x))

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.out = nn.Embedding(8, 6), nn.Linear(6, 8)
            self.asks, self.keys, self.score = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 1)
            self.gru = nn.GRU(12, 6, batch_first=True)

        def forward(self, seen, state, target=None):
            word = torch.empty(seen.size(0), 1, dtype=torch.long).fill_(0)
            answers, looks = [], []
            for i in range(4):
                scores = self.score(torch.tanh(self.asks(state.permute(1, 0, 2)) + self.keys(seen)))
                look = F.softmax(scores.squeeze(2).unsqueeze(1), dim=-1)
                step = torch.cat((self.words(word), torch.bmm(look, seen)), dim=2)
                found, state = self.gru(step, state)
                answers.append(self.out(found))
                looks.append(look)
                if target is None:
                    word = answers[-1].topk(1)[1].squeeze(-1).detach()
                else:
                    word = target[:, i].unsqueeze(1)
            return F.log_softmax(torch.cat(answers, dim=1), dim=-1), torch.cat(looks, dim=1)

    nets = fill(torch, Encoder(), 1), fill(torch, Decoder(), 2)
    optimizers = [torch.optim.Adam(net.parameters(), lr=0.01) for net in nets]
    for seed in range(3):
        x, y = (whole_numbers(torch, 8, 3, 4, seed=s) for s in (seed, seed + 9))
        answer, looks = nets[1](*nets[0](x), y)
        loss = nn.NLLLoss()(answer.view(-1, answer.size(-1)), y.view(-1))
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        print(loss.item(), looks[0, 0])
    with torch.no_grad():
        print(nets[1](*nets[0](x))[0].topk(1)[1].squeeze())


@program()
def a_picture_that_is_the_parameter(torch):
    F = torch.nn.functional

    def textures(x):
        rows = x.view(x.size(0) * x.size(1), -1)
        return torch.mm(rows, rows.t()).div(x.nelement())

    goal = textures(drawn(torch, 1, 3, 5, 5)).detach()
    picture = drawn(torch, 1, 3, 5, 5, seed=5).clone().requires_grad_(True)
    optimizer = torch.optim.LBFGS([picture], max_iter=6, line_search_fn="strong_wolfe")
    for _ in range(2):

        def closure():
            with torch.no_grad():
                picture.clamp_(-2, 2)
            optimizer.zero_grad()
            loss = 10 * F.mse_loss(textures(picture), goal)
            loss.backward()
            print("loss:", loss.item())
            return loss

        optimizer.step(closure)


@program("Conv2d", "GroupNorm", "ConvTranspose2d")
def noise_that_is_taken_away(torch):
    nn, F = torch.nn, torch.nn.functional
    rates = torch.linspace(1e-4, 0.2, 12)
    kept = torch.exp(torch.cumsum(torch.log(1.0 - rates), 0))

    def at(values, t, shape):
        return values.gather(-1, t.cpu()).reshape(t.shape[0], *((1,) * (len(shape) - 1)))

    class Denoiser(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.norm = nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4)
            self.down, self.up = nn.Conv2d(4, 6, 4, 2, 1), nn.ConvTranspose2d(6, 4, 4, 2, 1)
            self.out, self.time = nn.Conv2d(8, 1, 1), nn.Linear(8, 4)

        def forward(self, x, t):
            rate = torch.exp(torch.arange(4, device=t.device) * -math.log(10000) / 3)
            angle = t[:, None] * rate[None, :]
            place = torch.cat((angle.sin(), angle.cos()), dim=-1)
            h = F.silu(self.norm(self.inner(x))) + self.time(place)[:, :, None, None]
            return self.out(torch.cat((self.up(F.gelu(self.down(h))), h), dim=1))

    model = fill(torch, Denoiser())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for seed in range(3):
        x, noise = drawn(torch, 4, 1, 6, 6, seed=seed), drawn(torch, 4, 1, 6, 6, seed=seed + 9)
        t = whole_numbers(torch, 12, 4, seed=seed)
        left = at(kept, t, x.shape)
        loss = F.smooth_l1_loss(noise, model(left.sqrt() * x + (1.0 - left).sqrt() * noise, t))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())
    with torch.no_grad():
        x = drawn(torch, 1, 1, 6, 6)
        for i in reversed(range(0, 12, 3)):
            t = torch.full((1,), i, dtype=torch.long)
            step = rates[i] * model(x, t) / torch.sqrt(1.0 - kept[i])
            x = torch.sqrt(1.0 / (1.0 - rates[i])) * (x - step)
        print(x.clamp(-1, 1).mean().item())


@program()
def pairs_that_belong_together(torch):
    nn, F = torch.nn, torch.nn.functional
    model = fill(torch, nn.Sequential(nn.Linear(6, 8), nn.ReLU(inplace=True), nn.Linear(8, 4)))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2, weight_decay=1e-4)
    for seed in range(3):
        both = [drawn(torch, 4, 6, seed=s) for s in (seed, seed + 9)]
        features = F.normalize(model(torch.cat(both, dim=0)), dim=1)
        same = torch.cat([torch.arange(4) for _ in both], dim=0)
        same = (same.unsqueeze(0) == same.unsqueeze(1)).float()
        others = ~torch.eye(same.shape[0], dtype=torch.bool)
        same = same[others].view(same.shape[0], -1)
        alike = torch.matmul(features, features.T)[others].view(same.shape[0], -1)
        near = alike[same.bool()].view(same.shape[0], -1)
        far = alike[~same.bool()].view(same.shape[0], -1)
        logits = torch.cat([near, far], dim=1) / 0.07
        loss = nn.CrossEntropyLoss()(logits, torch.zeros(logits.shape[0], dtype=torch.long))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item(), near.mean().item())


@program("LSTM", "Embedding")
def tags_with_transitions(torch):
    nn, start, stop = torch.nn, 3, 4

    def total(row):
        largest = row[0, torch.max(row, 1)[1].item()]
        spread = largest.view(1, -1).expand(1, row.size()[1])
        return largest + torch.log(torch.sum(torch.exp(row - spread)))

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.out = nn.Embedding(6, 4), nn.Linear(6, 5)
            self.lstm = nn.LSTM(4, 3, num_layers=1, bidirectional=True)
            self.moves = nn.Parameter(torch.zeros(5, 5))

        def forward(self, words, tags):
            state = torch.zeros(2, 1, 3), torch.zeros(2, 1, 3)
            found, _ = self.lstm(self.words(words).view(len(words), 1, -1), state)
            scores = self.out(found.view(len(words), 6))
            every = torch.full((1, 5), -10000.0)
            every[0][start] = 0.0
            one, last = torch.zeros(1), torch.tensor(start)
            for score, tag in zip(scores, tags, strict=True):
                sums = [total(every + self.moves[t].view(1, -1) + score[t]) for t in range(5)]
                every = torch.cat([each.view(1) for each in sums]).view(1, -1)
                one = one + self.moves[tag, last] + score[tag]
                last = tag
            return total(every + self.moves[stop]) - (one + self.moves[stop, last])

    model = fill(torch, Tagger())
    model.moves.data[start, :] = -10000
    model.moves.data[:, stop] = -10000
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, weight_decay=1e-4)
    for _ in range(3):
        model.zero_grad()
        loss = model(torch.tensor([0, 3, 2, 5]), torch.tensor([0, 1, 2, 0]))
        loss.backward()
        optimizer.step()
        print(loss.item())


@program()
def a_gradient_of_gradients_in_two_trainings(torch):
    nn, F = torch.nn, torch.nn.functional
    normal = torch.distributions.Normal
    outer = fill(torch, nn.Linear(3, 1))
    optimizer = torch.optim.Adam(outer.parameters(), 1e-2)
    for seed in range(3):  # learning to learn
        x, y = drawn(torch, 6, 3, seed=seed), drawn(torch, 6, 1, seed=seed + 5)
        fast = list(outer.parameters())
        grads = torch.autograd.grad(F.mse_loss(F.linear(x, *fast), y), fast, create_graph=True)
        fast = [p - 0.1 * g for p, g in zip(fast, grads, strict=True)]
        loss = F.mse_loss(F.linear(x, fast[0], fast[1]), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())
    actor, log_alpha = fill(torch, nn.Linear(4, 4)), torch.zeros(1, requires_grad=True)
    optimizers = [torch.optim.Adam(p, lr=1e-2) for p in (list(actor.parameters()), [log_alpha])]
    for seed in range(3):  # actions that are squashed
        mean, log_std = actor(drawn(torch, 5, 4, seed=seed)).chunk(2, dim=-1)
        d = normal(mean, (-5 + 3.5 * (torch.tanh(log_std) + 1)).exp())
        assert d.rsample().requires_grad
        raw = mean + d.stddev * drawn(torch, 5, 2, seed=seed + 30)
        log_prob = d.log_prob(raw)
        log_prob -= torch.log(2.0 * (1 - torch.tanh(raw).pow(2)) + 1e-6)
        log_prob = log_prob.sum(1, keepdim=True)
        losses = (log_alpha.exp().item() * log_prob - torch.tanh(raw).sum(1, keepdim=True)).mean()
        alpha_loss = (-log_alpha.exp() * (log_prob.detach() - 2)).mean()
        for loss, each in zip((losses, alpha_loss), optimizers, strict=True):
            each.zero_grad()
            loss.backward()
            each.step()
        print(losses.item(), alpha_loss.item(), log_alpha.item())


@program("LocalResponseNorm", "ReLU6", "Hardswish")
def classes_of_torchvision(torch):
    nn = torch.nn

    def make_divisible(v, divisor=8):
        new = max(divisor, int(v + divisor / 2) // divisor * divisor)
        return new + divisor if new < 0.9 * v else new

    class ConvBN(nn.Sequential):
        def __init__(self, a, b, size=3, stride=1, groups=1, act=nn.ReLU6):
            super().__init__(
                nn.Conv2d(a, b, size, stride, (size - 1) // 2, groups=groups, bias=False),
                nn.BatchNorm2d(b),
                act(inplace=True),
            )

    class Squeeze(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.pool, self.scale = nn.AdaptiveAvgPool2d(1), nn.Hardsigmoid(inplace=True)
            self.fc1, self.fc2 = nn.Conv2d(c, 8, 1), nn.Conv2d(8, c, 1)

        def forward(self, x):
            return self.scale(self.fc2(self.fc1(self.pool(x)).relu())) * x

    class Inverted(nn.Module):
        def __init__(self, a, b, ratio, act):
            super().__init__()
            hidden = int(round(a * ratio))
            layers = [ConvBN(a, hidden, 1, act=act), ConvBN(hidden, hidden, groups=hidden, act=act)]
            layers += [
                Squeeze(hidden),
                nn.Conv2d(hidden, b, 1, 1, 0, bias=False),
                nn.BatchNorm2d(b),
            ]
            self.conv = nn.Sequential(*layers)

        def forward(self, x):
            return x + self.conv(x)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            c = make_divisible(6.5)
            self.features = nn.Sequential(
                nn.Conv2d(3, c, 3, 1, 1),
                nn.LocalResponseNorm(size=5, alpha=0.0001, beta=0.75, k=2),
                Inverted(c, c, 2, nn.ReLU6),
                Inverted(c, c, 1, nn.Hardswish),
                nn.MaxPool2d(2),
            )
            self.classifier = nn.Sequential(nn.Flatten(), nn.Mish(), nn.Linear(c * 9, 4))
            for m in self.modules():
                if isinstance(m, nn.Conv2d):
                    nn.init.kaiming_normal_(m.weight, mode="fan_out")
                elif isinstance(m, (nn.BatchNorm2d, nn.GroupNorm)):
                    nn.init.ones_(m.weight)

        def forward(self, x):
            return self.classifier(self.features(x))

    model = fill(torch, Net())
    print(model)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, momentum=0.9, alpha=0.9)
    for seed in range(2):
        loss = nn.CrossEntropyLoss()(
            model(drawn(torch, 4, 3, 6, 6, seed=seed)), whole_numbers(torch, 4, 4, seed=seed)
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())


@program("TripletMarginLoss", "PairwiseDistance")
def faces_that_are_near(torch):
    nn, F = torch.nn, torch.nn.functional
    net = fill(torch, nn.Sequential(nn.Linear(6, 8), nn.SELU(inplace=True), nn.Linear(8, 4)))
    m, v = ([torch.zeros_like(p) for p in net.parameters()] for _ in range(2))
    triplet, similar = nn.TripletMarginLoss(margin=1.0, p=2), nn.CosineEmbeddingLoss(margin=0.2)
    for step in range(1, 4):  # and Adam, written by hand
        a, p, n = (net(drawn(torch, 5, 6, seed=10 * step + i)) for i in range(3))
        label = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0])
        far = F.relu(2.0 - F.pairwise_distance(a, n, keepdim=True))
        loss = triplet(a, p, n) + similar(a, p, label) + torch.mean(torch.pow(far, 2))
        loss = loss + nn.MarginRankingLoss(margin=0.1)(a[:, 0], p[:, 0], label)
        net.zero_grad()
        loss.backward()
        with torch.no_grad():
            for param, first, second in zip(net.parameters(), m, v, strict=True):
                first.mul_(0.9).add_(param.grad, alpha=0.1)
                second.mul_(0.999).addcmul_(param.grad, param.grad, value=0.001)
                size = (second / (1 - 0.999**step)).sqrt_().add_(1e-8)
                param.addcdiv_(first, size, value=-0.01 / (1 - 0.9**step))
        print(loss.item(), torch.cdist(a, n).min().item())


@program("ParameterList", "Unflatten")
def many_loose_parameters(torch):
    nn, F = torch.nn, torch.nn.functional

    class LoRA(nn.Module):
        def __init__(self, base, r=2):
            super().__init__()
            self.base = base
            for param in base.parameters():
                param.requires_grad = False
            self.parts = nn.ParameterDict(
                {"a": torch.full((r, base.in_features), 0.1), "b": nn.Parameter(torch.zeros(4, r))}
            )

        def forward(self, x):
            return self.base(x) + x @ self.parts["a"].T @ self.parts["b"].T * 2

    class Factors(nn.Module):
        def __init__(self):
            super().__init__()
            self.lora = LoRA(nn.Linear(6, 4))
            self.mixers = nn.ParameterList([nn.Parameter(torch.ones(4, 2)) for _ in range(3)])
            self.mixers.append(nn.Parameter(torch.zeros(2)))
            self.shape, self.gate = nn.Unflatten(1, (2, 2)), nn.GLU(dim=-1)

        def forward(self, x):
            h = self.lora(x)
            for i, w in enumerate(self.mixers[:-1]):
                h = h + F.pad(F.mish(h @ w) * (i + 1), (0, 2))
            return self.gate(self.shape(h)).squeeze(-1) + self.mixers[-1]

    model = fill(torch, Factors())
    print(
        [name for name, p in model.named_parameters() if p.requires_grad], list(model.state_dict())
    )
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.1)
    for seed in range(3):
        loss = F.mse_loss(model(drawn(torch, 5, 6, seed=seed)), drawn(torch, 5, 2, seed=seed + 5))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())


@program()
def noise_in_many_steps(torch):
    nn = torch.nn
    beta = torch.linspace(1e-4, 0.02, 50)
    bar = torch.cumprod(1.0 - beta, dim=0)
    bars = torch.hstack((torch.ones(1), bar[:-1]))
    model = fill(torch, nn.Sequential(nn.Linear(3, 8), nn.Hardtanh(-2.0, 2.0), nn.Linear(8, 2)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for seed in range(3):
        x, noise = drawn(torch, 6, 2, seed=seed), drawn(torch, 6, 2, seed=seed + 9)
        t = whole_numbers(torch, 50, 6, seed=seed)
        xt = bar[t, None].sqrt() * x + (1 - bar[t, None]).sqrt() * noise
        loss = (noise - model(torch.cat((xt, t[:, None] / 50), 1))).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())
    variance = beta * (1.0 - bars) / (1.0 - bar)
    print(variance[::10], torch.clamp(variance, min=1e-20).log()[-1].item())
    density = drawn(torch, 4, 6, seed=1).exp().requires_grad_()  # light along a ray, as in NeRF
    alpha = 1.0 - torch.exp(-density * 0.3)
    through = torch.cumprod(torch.cat([torch.ones(4, 1), 1.0 - alpha + 1e-10], -1), -1)[:, :-1]
    (alpha * through).pow(2).sum().backward()
    print(density.grad)
    rows, cols = torch.triu_indices(4, 4, 1)
    print((density @ density.T)[rows, cols].sum().item(), torch.vstack([rows, cols]).shape)
    cache = torch.zeros(1, 2, 5, 3)
    cache.index_copy_(2, torch.tensor([1, 3]), torch.ones(1, 2, 2, 3))
    alike = (density @ density.T).detach().fill_diagonal_(-9.0)
    print(alike, torch.zeros(5, 2).fill_diagonal_(1, wrap=True), alike.argmax(1))
    hard = torch.nn.functional.gumbel_softmax(density, tau=0.5, hard=True)
    print(hard.sum(-1).tolist(), hard.requires_grad)
    print(cache.sum().item(), torch.linalg.vector_norm(cache, dim=-1)[0, 0])


@program()
def a_scene_from_rays(torch):
    """Points along rays, drawn again where the first ones found something."""
    nn, F = torch.nn, torch.nn.functional

    def encode(x, count=3):
        parts = [x]
        for i in range(count):
            parts += [torch.sin(2.0**i * x), torch.cos(2.0**i * x)]
        return torch.cat(parts, -1)

    def render(net, origins, ways, z):
        points = origins[..., None, :] + ways[..., None, :] * z[..., :, None]
        raw = net(encode(points.reshape(-1, 3))).reshape(*points.shape[:-1], 4)
        gaps = torch.cat([z[..., 1:] - z[..., :-1], torch.full_like(z[..., :1], 1e10)], -1)
        alpha = 1.0 - torch.exp(-F.relu(raw[..., 3]) * gaps)
        ones = torch.ones_like(alpha[..., :1])
        left = torch.cumprod(torch.cat([ones, 1.0 - alpha + 1e-10], -1), -1)[..., :-1]
        weights = alpha * left
        colors = (weights[..., None] * torch.sigmoid(raw[..., :3])).sum(-2)
        return colors, weights

    def draw_again(middles, weights, u):
        weights = weights + 1e-5
        pdf = weights / weights.sum(-1, keepdim=True)
        cdf = torch.cumsum(pdf, -1)
        cdf = torch.cat([torch.zeros_like(cdf[..., :1]), cdf], -1)
        u = u.expand(list(cdf.shape[:-1]) + [u.shape[-1]]).contiguous()
        places = torch.searchsorted(cdf, u, right=True)
        below = torch.max(torch.zeros_like(places - 1), places - 1)
        above = torch.min((cdf.shape[-1] - 1) * torch.ones_like(places), places)
        both = torch.stack([below, above], -1)
        shape = [both.shape[0], both.shape[1], cdf.shape[-1]]
        at = torch.gather(cdf.unsqueeze(1).expand(shape), 2, both)
        bins = torch.gather(middles.unsqueeze(1).expand(shape), 2, both)
        width = at[..., 1] - at[..., 0]
        width = torch.where(width < 1e-5, torch.ones_like(width), width)
        t = (u - at[..., 0]) / width
        return bins[..., 0] + t * (bins[..., 1] - bins[..., 0])

    nets = [
        fill(torch, nn.Sequential(nn.Linear(21, 16), nn.ReLU(), nn.Linear(16, 4)), seed)
        for seed in (0, 1)
    ]
    optimizer = torch.optim.Adam([p for net in nets for p in net.parameters()], lr=5e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 2, T_mult=2)
    origins, ways = drawn(torch, 6, 3, seed=2), F.normalize(drawn(torch, 6, 3, seed=3), dim=-1)
    target = drawn(torch, 6, 3, seed=4).sigmoid()
    z = torch.linspace(2.0, 6.0, 9).expand(6, 9)
    for _ in range(7):
        coarse, weights = render(nets[0], origins, ways, z)
        middles = 0.5 * (z[..., 1:] + z[..., :-1])
        new = draw_again(middles, weights[..., 1:-1].detach(), torch.linspace(0.0, 1.0, 8))
        fine, _ = render(nets[1], origins, ways, torch.sort(torch.cat([z, new], -1), -1)[0])
        loss = F.mse_loss(coarse, target) + F.mse_loss(fine, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        print(loss.item(), -10.0 * math.log10(loss.item()), schedule.get_last_lr()[0])


@program("Conv1d", "Dropout")
def sounds_by_dilated_convolutions(torch):
    """A temporal network with normalised weights, and a critic whose layers are bounded."""
    nn = torch.nn
    norm, spectral = torch.nn.utils.weight_norm, torch.nn.utils.spectral_norm

    class Cut(nn.Module):
        def __init__(self, size):
            super().__init__()
            self.size = size

        def forward(self, x):
            return x[:, :, : -self.size].contiguous()

    class Block(nn.Module):
        def __init__(self, inside, outside, dilation):
            super().__init__()
            pad = 2 * dilation
            layers = []
            for channels in (inside, outside):
                conv = norm(nn.Conv1d(channels, outside, 3, padding=pad, dilation=dilation))
                layers += [conv, Cut(pad), nn.ReLU(), nn.Dropout(0.0)]
            self.net = nn.Sequential(*layers)
            self.side = nn.Conv1d(inside, outside, 1) if inside != outside else None

        def forward(self, x):
            return torch.relu(self.net(x) + (x if self.side is None else self.side(x)))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        net = nn.Sequential(Block(1, 4, 1), Block(4, 4, 2), nn.Conv1d(4, 1, 1))
    critic = nn.Sequential(spectral(nn.Conv1d(1, 3, 4, 2)), nn.LeakyReLU(0.1))
    critic.append(spectral(nn.Conv1d(3, 1, 3)))
    fill(torch, net), fill(torch, critic, 1)
    print([name for name in net.state_dict() if "weight" in name])
    painter = torch.optim.Adam(net.parameters(), lr=1e-2)
    judge = torch.optim.Adam(critic.parameters(), lr=1e-2)
    for part in critic:  # PyTorch draws other numbers
        for ending in "uv":
            if hasattr(part, "weight_" + ending):
                buffer = getattr(part, f"weight_{ending}")
                buffer.copy_(nn.functional.normalize(drawn(torch, *buffer.shape), dim=0))
    x, real = drawn(torch, 3, 1, 20), drawn(torch, 3, 1, 20, seed=5)
    for _ in range(6):
        judge.zero_grad()
        loss = torch.relu(1 - critic(real)).mean() + torch.relu(1 + critic(net(x).detach())).mean()
        loss.backward()
        judge.step()
        painter.zero_grad()
        lie = -critic(net(x)).mean()
        lie.backward()
        painter.step()
        print(loss.item(), lie.item())
    torch.nn.utils.remove_weight_norm(net[0].net[0])
    torch.nn.utils.remove_spectral_norm(critic[0])
    print(critic(net(x)).sum().item(), sorted(critic.state_dict()))


@program("LayerNorm")
def adapters_on_a_network_that_is_frozen_late(torch):
    """The whole network has been used before an adapter freezes it, and its graph is used after."""
    nn = torch.nn
    base = fill(torch, nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 8)))
    x = drawn(torch, 5, 4)
    early = base(x).pow(2).mean()
    for param in base.parameters():
        param.requires_grad_(False)
    memory = nn.Parameter(drawn(torch, 2, 8, seed=3))
    head = fill(torch, nn.Linear(8, 2), 1)
    optimizer = torch.optim.AdamW([memory, *head.parameters()], lr=1e-2)
    for step in range(4):
        kept = torch.cat([base(x), memory])
        loss = nn.functional.cross_entropy(head(kept), (torch.arange(7) % 2).type(torch.LongTensor))
        total = loss + early if step == 0 else loss
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        mask = (kept > 0).type(torch.Tensor)
        print(total.item(), memory.grad.sum().item(), mask.mean().item())
    print([param.grad is None for param in base.parameters()])


@program("Conv2d")
def pixels_one_after_the_other(torch):
    """Masked convolutions draw pixel by pixel; an optimizer of one's own, in PyTorch's manner."""
    nn = torch.nn

    class MaskedConv2d(nn.Conv2d):
        def __init__(self, *args, center, **options):
            super().__init__(*args, **options)
            mask = torch.ones_like(self.weight, memory_format=torch.preserve_format)
            high, wide = self.kernel_size
            mask[:, :, high // 2, wide // 2 + center :] = 0
            mask[:, :, high // 2 + 1 :] = 0
            self.register_buffer("mask", mask)

        def forward(self, x):
            return self._conv_forward(x, self.weight * self.mask, self.bias)

    class Belief(torch.optim.Optimizer):
        def __init__(self, params, lr=1e-2, betas=(0.9, 0.99)):
            super().__init__(params, dict(lr=lr, betas=betas))

        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                first, second = group["betas"]
                for p in group["params"]:
                    state = self.state[p]
                    if not state:
                        state["step"] = 0
                        for name in ("mean", "spread"):
                            state[name] = torch.zeros_like(p, memory_format=torch.preserve_format)
                    state["step"] += 1
                    state["mean"].mul_(first).add_(p.grad, alpha=1 - first)
                    off = p.grad - state["mean"]
                    state["spread"].mul_(second).addcmul_(off, off, value=1 - second).add_(1e-8)
                    rate = group["lr"] / (1 - first ** state["step"])
                    root = (state["spread"] / (1 - second ** state["step"])).sqrt().add_(1e-8)
                    p.addcdiv_(state["mean"], root, value=-rate)

    first = MaskedConv2d(1, 4, 3, padding=1, center=0)
    net = nn.Sequential(first, nn.ReLU(), MaskedConv2d(4, 1, 3, padding=1, center=1))
    optimizer = Belief(fill(torch, net).parameters())
    picture = (drawn(torch, 2, 1, 5, 5) > 0).float()
    for _ in range(5):
        loss = nn.functional.binary_cross_entropy_with_logits(net(picture), picture)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())
    canvas = torch.zeros(1, 1, 5, 5)
    for y in range(5):
        for x in range(5):
            canvas[0, 0, y, x] = (net(canvas)[0, 0, y, x] > 0).float()
    print(canvas.flatten().tolist(), float(canvas.sum()))


@program()
def low_rank_adapters_as_subclasses(torch):
    """A layer that inherits Linear and draws more than it, and the merge after training."""
    nn = torch.nn

    class Adapted(nn.Linear):
        def __init__(self, inside, outside, rank, **options):
            super().__init__(inside, outside, **options)
            self.a = nn.Parameter(self.weight.new_zeros((rank, inside)))
            self.b = nn.Parameter(self.weight.new_zeros((outside, rank)))
            self.weight.requires_grad = False
            self.merged = False
            self.reset_parameters()

        def reset_parameters(self):
            nn.Linear.reset_parameters(self)
            if hasattr(self, "a"):
                nn.init.constant_(self.a, 0.25)
                nn.init.zeros_(self.b)

        def train(self, mode=True):
            nn.Linear.train(self, mode)
            if mode == self.merged:
                self.weight.data += (self.b @ self.a) * (-1 if mode else 1)
                self.merged = not mode
            return self

        def forward(self, x):
            out = nn.functional.linear(x, self.weight, self.bias)
            return out if self.merged else out + (x @ self.a.transpose(0, 1)) @ self.b.t()

    layer = Adapted(4, 3, 2)
    print(layer.a.sum().item(), layer.b.sum().item())
    print([name for name, p in layer.named_parameters() if p.requires_grad])
    with torch.no_grad():
        layer.weight.copy_(drawn(torch, 3, 4))
        layer.bias.copy_(drawn(torch, 3))
    x, target = drawn(torch, 5, 4, seed=2), drawn(torch, 5, 3, seed=3)
    optimizer = torch.optim.SGD([p for p in layer.parameters() if p.requires_grad], lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        loss = (layer(x) - target).pow(2).mean()
        loss.backward()
        optimizer.step()
        print(loss.item())
    trained = layer(x)
    print((layer.eval()(x) - trained).abs().max().item() < 1e-5, layer.weight.sum().item())
    print((layer.train()(x) - trained).abs().max().item() < 1e-5, layer.weight.sum().item())


@program()
def papers_that_cite_each_other(torch):
    nn, F = torch.nn, torch.nn.functional

    class Graph(nn.Module):
        def __init__(self, features, hidden, classes):
            super().__init__()
            self.first = nn.Parameter(torch.empty(features, hidden))
            self.second = nn.Parameter(torch.empty(hidden, classes))

        def forward(self, x, graph):
            x = F.relu(torch.spmm(graph, torch.mm(x, self.first)))
            return F.log_softmax(torch.spmm(graph, torch.mm(x, self.second)), dim=1)

    edges = np.random.default_rng(0).integers(0, 9, (20, 2)).astype(np.int32)
    graph = torch.sparse_coo_tensor(edges.T, torch.ones(20), (9, 9), dtype=torch.int64)
    graph = torch.eye(9) + graph
    degree = torch.sqrt(1 / torch.sum(graph, dim=1))
    degree[degree == float("inf")] = 0
    degree = torch.diag(degree).to_sparse()
    graph = (degree @ graph @ degree).to_sparse()
    words = (drawn(torch, 9, 6) > 0).float()
    words = (torch.diag(1 / words.sum(dim=1).clamp(min=1)).to_sparse() @ words).to_sparse()
    print(graph.shape, words.is_sparse, graph.coalesce().values().sum().item())
    model = fill(torch, Graph(words.shape[1], 4, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05, weight_decay=5e-4)
    topics, known = whole_numbers(torch, 3, 9), torch.tensor([0, 2, 3, 5])
    for _ in range(4):
        optimizer.zero_grad()
        loss = F.nll_loss(model(words, graph)[known], topics[known])
        loss.backward()
        optimizer.step()
        print(loss.item(), (model(words, graph).argmax(dim=1) == topics).float().mean().item())


@program()
def a_target_that_is_smoothed(torch):
    nn = torch.nn

    class Smoothing(nn.Module):
        def __init__(self, size, padding, smoothing):
            super().__init__()
            self.criterion = nn.KLDivLoss(reduction="sum")
            self.padding, self.smoothing, self.size = padding, smoothing, size

        def forward(self, x, target):
            truth = x.data.clone()
            truth.fill_(self.smoothing / (self.size - 2))
            truth.scatter_(1, target.data.unsqueeze(1), 1 - self.smoothing)
            truth[:, self.padding] = 0
            rows = torch.nonzero(target.data == self.padding)
            if rows.dim() > 0:
                truth.index_fill_(0, rows.squeeze(1), 0.0)
            return self.criterion(x, truth.clone().detach())

    x = drawn(torch, 5, 7).requires_grad_()
    loss = Smoothing(7, 0, 0.4)(x.log_softmax(-1), torch.tensor([2, 1, 0, 3, 0]))
    loss.backward()
    print(loss.item(), x.grad.abs().sum(1))


@program()
def a_rate_for_each_layer(torch):
    """Rates and factors that are tensors, as many optimizers of other people compute them."""
    model = fill(torch, torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Linear(5, 2)))
    moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in model.parameters()]
    largest = [torch.zeros_like(p) for p in model.parameters()]
    for step in range(1, 5):
        loss = (model(drawn(torch, 8, 4)) - drawn(torch, 8, 2, seed=2)).square().mean()
        model.zero_grad()
        loss.backward()
        for p, (m, v), most in zip(model.parameters(), moments, largest, strict=True):
            grad = p.grad.data
            m.mul_(0.9).add_(grad, alpha=1 - 0.9)
            v.mul_(0.99).addcmul_(grad, grad, value=1 - 0.99)
            torch.maximum(most, v, out=most)
            update = m / most.sqrt().add(1e-8)
            trust = torch.norm(p.data).clamp(0, 10) / torch.norm(update)
            p.data.add_(update, alpha=-0.05 * trust)
            p.data.addcdiv_(m, most.sqrt().add_(1.0), value=-0.01 * trust)
        print(step, loss.item(), trust.item())


@program("LazyLinear", "LazyConv2d", "LazyBatchNorm2d")
def layers_that_wait_for_their_input(torch):
    nn = torch.nn
    net = nn.Sequential(
        nn.LazyConv2d(6, kernel_size=5, padding=2),
        nn.LazyBatchNorm2d(),
        nn.Sigmoid(),
        nn.AvgPool2d(kernel_size=2, stride=2),
        nn.Flatten(),
        nn.LazyLinear(10),
    )
    print(net, net[0].weight)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    x, y = drawn(torch, 4, 1, 8, 8), whole_numbers(torch, 10, 4)
    for layer in net:
        x = layer(x)
        print(layer.__class__.__name__, "output shape:", x.shape)
    fill(torch, net)
    for _ in range(3):
        loss = nn.functional.cross_entropy(net(drawn(torch, 4, 1, 8, 8)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())
    print(net, sorted(net.state_dict()))


@program()
def gradients_of_every_sample(torch):
    functions, nn = path(torch, "func"), torch.nn
    models = [nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)) for _ in range(3)]
    for number, model in enumerate(models):
        fill(torch, model, number)
    params = {name: p.detach() for name, p in models[0].named_parameters()}
    x, y = drawn(torch, 5, 3), whole_numbers(torch, 2, 5)

    def compute_loss(params, sample, target):
        out = functions.functional_call(models[0], params, (sample.unsqueeze(0),))
        return nn.functional.cross_entropy(out, target.unsqueeze(0))

    gradient = functions.grad_and_value(compute_loss)
    each, losses = functions.vmap(gradient, in_dims=(None, 0, 0))(params, x, y)
    print(losses, {name: g.shape for name, g in each.items()}, each["2.bias"])
    stacked, buffers = functions.stack_module_state(models)

    def call(params, buffers, x):
        return functions.functional_call(models[0], (params, buffers), (x,))

    print(functions.vmap(call, in_dims=(0, 0, None))(stacked, buffers, x).detach())
    row = lambda p, x: functions.functional_call(models[0], p, (x[None],))[0]  # noqa: E731
    jacobian = functions.vmap(functions.jacrev(row), (None, 0))(params, x)["0.weight"].flatten(2)
    print(torch.einsum("naf,maf->nm", jacobian, jacobian))
    print(functions.hessian(lambda x: row(params, x).exp().sum())(x[0]))


@program()
def what_programs_of_2017_write(torch):
    variable = path(torch, "autograd").Variable
    script = path(torch, "jit").script

    @script
    def gate(x):
        return torch.sigmoid(x) * x

    rnn = fill(torch, torch.nn.RNN(3, 4))
    weight = next(rnn.parameters()).data
    hidden = variable(weight.new(1, 2, 4).zero_())
    buffer, noise = torch.FloatTensor(1), torch.FloatTensor(4, 3)
    for batch in (drawn(torch, 4, 3), drawn(torch, 2, 3, seed=3)):
        buffer.resize_as_(batch).copy_(batch)
        noise.resize_(batch.size(0), 3).fill_(0.5)
        output, hidden = rnn(variable((buffer + noise).unsqueeze_(1).expand(-1, 2, 3)), hidden)
        hidden = variable(hidden.data)
        print(gate(output).sum().data.item(), hidden.size())
    mask = torch.ByteTensor([1, 0, 1, 1])
    print(mask.type(), torch.where(mask.bool(), torch.arange(4), -1), buffer.t_().size())
    print(drawn(torch, 3, 5).median(1)[0], drawn(torch, 7).kthvalue(2)[0].item())
