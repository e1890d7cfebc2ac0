"""What noise on embeddings and activations buys: epsilon, what it covers and what it does not. Made of records."""

import math
from collections import defaultdict
from dataclasses import dataclass

from cfcl.config import Config
from cfcl.records import Setup
from cfcl.runs.folders import Run

LARGEST_EPSILON = 1e6
"""Above it nothing is protected, and nobody needs the number."""
SMALLEST_NOISE = 1e-3
"""Below it epsilon is above that."""
COVERS = (
    "It covers all embeddings or activations of one image that leave its device over the run, on all links, pulls and "
    "pushes together: how well anybody who has them all can tell the image from any other one, which could have been "
    "sent in its place. The worst case is counted: one image in every exchange and in every reserve, "
    "and no credit for being drawn at random."
)
LEAVES_OUT = (
    "It does not cover which items are selected, which points are in a reserve, numbers that a method sends with a "
    "reserve, and the models that go to the server. All of them depend on the data, and have no noise."
)


@dataclass(frozen=True)
class Spent:
    """What one image has lost at most."""

    releases: int
    """Vectors of it, each with noise of its own."""
    noise: float
    delta: float

    @property
    def epsilon(self) -> float | None:
        """By `epsilon`; None where the accountant is not installed."""
        return epsilon(self.noise, self.releases, self.delta)

    @property
    def told(self) -> str:
        """In a few words."""
        counted = f"{self.releases:,} releases of one image, noise {self.noise:g}, delta {self.delta:g}"
        found = self.epsilon
        if found is None:
            return f"epsilon not computed ({counted}): pip install 'cfcl[privacy]'"
        if found > LARGEST_EPSILON:
            return f"epsilon above {LARGEST_EPSILON:,.0f}, which protects nothing ({counted})"
        return f"epsilon {found:.3g} ({counted})"


def epsilon(noise: float, releases: int, delta: float) -> float | None:
    """The epsilon of so many Gaussian mechanisms on vectors of one image, exact; None without dp-accounting.

    Another image in its place moves a vector of length `clip` by twice that, and together they are one mechanism with
    the noise divided by the root of their number.
    """
    try:
        from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss
    except ImportError:
        return None
    if releases <= 0:
        return 0.0
    deviation = noise / math.sqrt(releases)
    if deviation < SMALLEST_NOISE:
        return math.inf
    loss = GaussianPrivacyLoss(deviation, sensitivity=2.0)
    low, high = 0.0, 1.0
    while loss.get_delta_for_epsilon(high) > delta:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if loss.get_delta_for_epsilon(middle) > delta else (low, middle)
    return high


def planned(config: Config, setup: Setup) -> Spent | None:
    """What the schedule allows at most; None without noise."""
    if setup.most_pulled is None or setup.most_pushed is None:
        return None
    return Spent(setup.most_pulled + setup.most_pushed, config.privacy.noise, config.privacy.delta)


def seen(run: Run) -> Spent | None:
    """What records of pulls say, if all receivers were traced; pushes are counted as planned.

    With `records.explain` it is known which image was sent how often; without, a device may have sent one every time.
    None where messages may get lost: they have left their device, and no record has them.
    """
    allowed, devices = planned(run.config, run.setup), len(run.setup.points)
    if allowed is None or run.setup.most_pushed is None or run.config.evaluation.num_traced < devices:
        return None
    if run.config.faults.active:
        return None
    steps: dict[tuple[int, int], set[int]] = defaultdict(set)
    for pull in run.pulls:
        reasons = pull.reasons
        for index in [0] * min(1, pull.items) if reasons is None else [reason.index for reason in reasons]:
            if index < run.setup.points[pull.transmitter]:  # what is passed on has its owner's noise already
                steps[pull.transmitter, index].add(pull.step)
    views = 2 if run.config.exchange.mode == "activations" else 1
    number = views * max(map(len, steps.values()), default=0) + run.setup.most_pushed
    return Spent(number, allowed.noise, allowed.delta)


def sentences(run: Run) -> list[str]:
    """Epsilon, what it covers and what it does not; nothing for a run without noise."""
    allowed, found = planned(run.config, run.setup), seen(run)
    if allowed is None:
        return []
    by = f"By schedule: {allowed.told}."
    was = "" if found is None else f" By the records of this run: {found.told}."
    return [by + was, COVERS, LEAVES_OUT]
