"""The networks of an attacker, small enough for a minute of one core, and how they learn."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from cfcl import rng
from cfcl.models import networks

WIDTH = 32
BATCH = 64
RATE = 2e-3

Shape = tuple[int, ...]
Loss = Callable[[Tensor, Tensor], Tensor]
Watch = Callable[[], None]


class Inverter(nn.Module):
    """Makes images of what a layer made of them: from maps by convolutions, from vectors by two linear layers first."""

    def __init__(self, shape: Shape, image_shape: Shape) -> None:
        super().__init__()
        channels, *self.sides = image_shape
        coarse = [math.ceil(side / 4) for side in self.sides]
        if len(shape) == 3 and all(side >= least for side, least in zip(shape[1:], coarse, strict=True)):
            self.start: nn.Module = nn.Conv2d(shape[0], WIDTH, 3, padding=1)
        else:
            self.start = nn.Sequential(
                nn.Flatten(),
                nn.Linear(math.prod(shape), 4 * WIDTH),
                nn.ReLU(),
                nn.Linear(4 * WIDTH, WIDTH * math.prod(coarse)),
                nn.Unflatten(1, (WIDTH, *coarse)),
            )
        self.middle = nn.Conv2d(WIDTH, WIDTH, 3, padding=1)
        self.fine = nn.Conv2d(WIDTH, WIDTH // 2, 3, padding=1)
        self.last = nn.Conv2d(WIDTH // 2, channels, 3, padding=1)

    def forward(self, values: Tensor) -> Tensor:
        """Images with pixels in 0..1."""
        half = [math.ceil(side / 2) for side in self.sides]
        found = functional.relu(self.start(values))
        found = functional.relu(self.middle(functional.interpolate(found, half)))
        found = functional.relu(self.fine(functional.interpolate(found, self.sides)))
        return torch.sigmoid(self.last(found))


def classifier(image_shape: Shape, num_classes: int) -> nn.Module:
    """Tells the class of an image; it judges reconstructions, and never sees one while it learns."""
    channels, height, width = image_shape
    pooled = (height // 2 // 2) * (width // 2 // 2)
    return nn.Sequential(
        nn.Conv2d(channels, WIDTH // 2, 3, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(WIDTH // 2, WIDTH, 3, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(WIDTH * pooled, 64),
        nn.ReLU(),
        nn.Linear(64, num_classes),
    )


def fit(
    build: Callable[[], nn.Module],
    inputs: Tensor,
    targets: Tensor,
    loss: Loss,
    *,
    steps: int,
    seed: int,
    name: str,
    watch: Watch = lambda: None,
) -> nn.Module:
    """What `build` makes, trained to turn `inputs` into `targets`; weights and batches come from the seed and name."""
    with torch.device("meta"):
        bare = build()
    module = networks.drawn(bare, rng.stream(seed, "audit-weights", name)).to(inputs.device)
    draws = rng.stream(seed, "audit-batches", name)
    optimiser = torch.optim.Adam(module.parameters(), lr=RATE)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    with torch.enable_grad():
        for _ in range(steps):
            chosen = torch.randint(len(inputs), (BATCH,), generator=draws).to(inputs.device)
            optimiser.zero_grad()
            loss(module(inputs[chosen]), targets[chosen]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            decay.step()
            watch()
    return module.eval()


def apply(module: nn.Module, inputs: Tensor) -> Tensor:
    """What a trained network makes of `inputs`."""
    with torch.no_grad():
        return torch.cat([module(part) for part in torch.split(inputs, 1024)])
