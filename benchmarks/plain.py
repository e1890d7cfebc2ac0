"""Federated averaging as people write it: a loop over clients, a DataLoader each, transforms image by image.

python benchmarks/plain.py fashion-mnist-study 25
"""

import argparse
import json
import math
import random
import time
from collections.abc import Iterator

import torch
from PIL import Image, ImageFilter
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from cfcl import config
from cfcl.config import Config
from cfcl.models import networks
from cfcl.sim import world


def random_view(image: Image.Image, settings: config.AugmentConfig) -> Image.Image:
    """A random view of one image."""
    width, height = image.size
    if settings.crop < 1:
        area = random.uniform(settings.crop, 1.0)
        ratio = math.exp(random.uniform(-math.log(4 / 3), math.log(4 / 3)))
        w, h = min(1.0, math.sqrt(area * ratio)) * width, min(1.0, math.sqrt(area / ratio)) * height
        left, top = random.uniform(0, width - w), random.uniform(0, height - h)
        image = image.resize((width, height), Image.Resampling.BILINEAR, box=(left, top, left + w, top + h))
    if random.random() < settings.flip:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if settings.rotation:
        image = image.rotate(random.uniform(-settings.rotation, settings.rotation), Image.Resampling.BILINEAR)
    if settings.perspective:
        image = perspective(image, settings.perspective)
    if settings.blur:
        image = image.filter(ImageFilter.GaussianBlur(random.uniform(0.1, settings.blur)))
    return image


def perspective(image: Image.Image, strength: float) -> Image.Image:
    """Corners moved inwards, each by its own draw."""
    w, h = image.size
    corners = [(0, 0), (w, 0), (w, h), (0, h)]
    moved = [
        (abs(x - random.uniform(0, strength * w / 2)), abs(y - random.uniform(0, strength * h / 2))) for x, y in corners
    ]
    rows, target = [], []
    for (x, y), (u, v) in zip(moved, corners, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        target += [u, v]
    solved = torch.linalg.solve(torch.tensor(rows, dtype=torch.float64), torch.tensor(target, dtype=torch.float64))
    return image.transform((w, h), Image.Transform.PERSPECTIVE, solved.tolist(), Image.Resampling.BILINEAR)


def to_tensor(image: Image.Image) -> Tensor:
    """Pixels in 0..1, channels first."""
    pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
    return pixels.view(image.height, image.width, -1).permute(2, 0, 1).float().div(255)


class Triplets(Dataset[tuple[Tensor, Tensor, Tensor]]):
    """An image, a random view of it, and another image."""

    def __init__(self, images: Tensor, settings: config.AugmentConfig) -> None:
        self.images = [Image.fromarray(image.permute(1, 2, 0).squeeze(-1).numpy()) for image in images]
        self.settings = settings

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, Tensor]:
        image = self.images[index]
        other = self.images[(index + random.randrange(1, len(self.images))) % len(self.images)]
        return to_tensor(image), to_tensor(random_view(image, self.settings)), to_tensor(other)


def plain_network(setting: Config, shape: tuple[int, int, int]) -> nn.Module:
    """The same network in torch's usual layout."""
    layers = networks.build(setting.model, shape, torch.Generator()).children()
    return nn.Sequential(*[layer for layer in layers if not isinstance(layer, networks.ChannelsLast)])


def endless(loader: DataLoader[tuple[Tensor, Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Epoch after epoch."""
    while True:
        yield from loader


def train(setting: Config, rounds: int) -> float:
    """Seconds per update over all rounds but the first."""
    data = world.build(setting)
    images = data.dataset.train_images
    clients = [
        endless(
            DataLoader(Triplets(images[part], setting.augment), setting.train.batch_size, shuffle=True, drop_last=True)
        )
        for part in data.parts
    ]
    server = plain_network(setting, data.dataset.image_shape)
    models = [plain_network(setting, data.dataset.image_shape) for _ in clients]
    optimisers = [torch.optim.Adam(model.parameters(), lr=setting.train.learning_rate) for model in models]
    weights = [len(part) / sum(map(len, data.parts)) for part in data.parts]
    begun = time.perf_counter()
    for number in range(rounds):
        if number == 1:
            begun = time.perf_counter()
        for batches, model, optimiser in zip(clients, models, optimisers, strict=True):
            model.load_state_dict(server.state_dict())
            for _ in range(setting.aggregation.period):
                update(model, optimiser, next(batches), setting.train.margin)
        states = [model.state_dict() for model in models]
        average = {key: sum(w * s[key] for w, s in zip(weights, states, strict=True)) for key in states[0]}
        server.load_state_dict(average)
    return (time.perf_counter() - begun) / ((rounds - 1) * setting.aggregation.period * len(clients))


def update(
    model: nn.Module, optimiser: torch.optim.Optimizer, batch: tuple[Tensor, Tensor, Tensor], margin: float
) -> None:
    """One step of triplet loss."""
    anchor, positive, negative = functional.normalize(model(torch.cat(batch)), dim=-1).chunk(3)
    near, far = (anchor - positive).square().sum(-1), (anchor - negative).square().sum(-1)
    optimiser.zero_grad()
    torch.autograd.backward((near - far + margin).clamp_min(0).mean())
    optimiser.step()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("preset")
    parser.add_argument("rounds", type=int)
    options = parser.parse_args()
    setting = config.load(options.preset, ["exchange.method=fedavg"])
    seconds = train(setting, options.rounds)
    print(json.dumps({"per_update_ms": 1e3 * seconds, "threads": torch.get_num_threads()}))


if __name__ == "__main__":
    main()
