"""Who sends what: a policy is a pair of functions, one for each end of a link. Baselines are policies too.

`offer` is the receiver's side: which of its points stand for its data. `choose` is the transmitter's side: which of
its candidates it sends. Both are pure; a policy with no `offer` pushes nothing, one with no `choose` never exchanges.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from cfcl import rng
from cfcl.config import ExchangeConfig
from cfcl.core import clustering, importance
from cfcl.errors import CfclError


@dataclass(frozen=True)
class Draws:
    """The random numbers of one device at one step; each link has its own streams."""

    seed: int
    device: int
    step: int
    receivers: tuple[int, ...] = ()

    def shared(self, purpose: str, *shape: int) -> Tensor:
        """Uniforms of the device itself."""
        return _uniforms(rng.stream(self.seed, purpose, self.device, self.step), *shape)

    def per_link(self, purpose: str, *shape: int) -> Tensor:
        """Uniforms with a leading axis of links."""
        return torch.stack(
            [_uniforms(rng.stream(self.seed, purpose, self.device, to, self.step), *shape) for to in self.receivers]
        )


@dataclass(frozen=True)
class Pull:
    """What a transmitter knows when several receivers pull from it at once."""

    candidates: Float[Tensor, "candidates dim"]
    """Embeddings of its candidates, Eq. (14)."""
    clusters: clustering.Clusters
    """The candidates' own clusters (a batch of one)."""
    reserve: Float[Tensor, "links reserve dim"] | None
    """Embeddings of each receiver's reserve, Eq. (13); None if the policy pushes none."""
    positives: Float[Tensor, "links reserve dim"] | None
    """Embeddings of the augmented reserve points (mode `explicit`)."""
    num_items: tuple[int, ...]
    """How many items each receiver asks for."""
    temperature: float
    margin: float
    config: ExchangeConfig
    draws: Draws

    def uniforms(self, purpose: str, size: int) -> Float[Tensor, "links size"]:
        """Random numbers of each link, where the candidates are."""
        return self.draws.per_link(purpose, size).to(self.candidates.device)


@dataclass(frozen=True)
class Selection:
    """What a transmitter sends to each receiver."""

    chosen: tuple[Int[Tensor, " _"], ...]
    """Positions among the candidates, one tensor a link."""
    log_probabilities: Float[Tensor, "links candidates"]
    """The law they were drawn from."""


Offer = Callable[[Float[Tensor, "points pixels"], int, ExchangeConfig, Draws], Tensor]
Choose = Callable[[Pull], Selection]


@dataclass(frozen=True)
class Policy:
    """A way of exchanging."""

    offer: Offer | None
    choose: Choose | None
    once: bool = False
    """Everything moves at t = 0, chosen from all local points, and is kept."""
    scores: bool = True
    """Whether `choose` looks at embeddings; if not, none are computed for it."""


def push_reserve(points: Float[Tensor, "points pixels"], size: int, config: ExchangeConfig, draws: Draws) -> Tensor:
    """Positions of the reserve points, Eq. (6), by K-means on pixels or at random."""
    if config.reserve == "random":
        return importance.uniform_sample(draws.shared("reserve", len(points)).to(points.device), size)
    return importance.reserve_by_kmeans(points, draws.shared("reserve", size).to(points.device, points.dtype))


def draw(log_probabilities: Float[Tensor, "links candidates"], pull: Pull) -> Selection:
    """As many distinct candidates as each receiver asks for, by their probability."""
    uniforms = pull.uniforms("draw", log_probabilities.shape[1])
    return Selection(importance.gumbel_top_n(log_probabilities, pull.num_items, uniforms), log_probabilities)


def choose_explicit(pull: Pull) -> Selection:
    """Explicit pull, Alg. 2: share of candidates in each joint cluster, times the softmax of expected losses."""
    assert pull.reserve is not None
    assert pull.positives is not None
    config, num_candidates = pull.config, len(pull.candidates)
    candidates = pull.candidates.expand(len(pull.num_items), -1, -1)
    together = torch.cat([candidates, pull.reserve], dim=1)
    seeds = pull.uniforms("clusters", config.num_clusters).to(together.dtype)
    assignment = clustering.kmeans(together, config.num_clusters, seeds).assignment
    member = importance.membership(assignment, config.num_clusters)
    candidate_counts, reserve_counts = member[:, :num_candidates].sum(1), member[:, num_candidates:].sum(1)
    macro = importance.macro_explicit(importance.macro_ratio(candidate_counts, reserve_counts))
    losses = importance.expected_loss(pull.reserve, pull.positives, candidates, margin=pull.margin)
    if config.temperature_scale == "spread":
        losses = importance.scale_by_spread(losses)
    micro = importance.micro_explicit(
        losses, member[:, :num_candidates], temperature=pull.temperature, softmax=config.softmax
    )
    return draw(importance.joint(macro, micro, assignment[:, :num_candidates]), pull)


def choose_implicit(pull: Pull) -> Selection:
    """Implicit pull, Alg. 3: cluster scores scaled by overlap, times the scores inside the cluster."""
    assert pull.reserve is not None
    config, links = pull.config, len(pull.num_items)
    assignment = pull.clusters.assignment.expand(links, -1)
    centroids = pull.clusters.centroids.double().expand(links, -1, -1)
    occupied = (pull.clusters.counts > 0).expand(links, -1)
    member = importance.membership(assignment, config.num_clusters)
    candidates, reserve = pull.candidates.double().expand(links, -1, -1), pull.reserve.double()
    own = centroids.gather(1, assignment.unsqueeze(-1).expand_as(candidates))
    score = importance.embedding_score(
        clustering.squared_distances(candidates, reserve),
        (candidates - own).square().sum(-1),
        member,
        form=config.score,
    )
    macro = importance.macro_implicit(importance.cluster_score(score, member))
    overlap = importance.overlap(centroids, occupied, *_reserve_centroids(reserve, pull))
    factor = importance.overlap_density(overlap, mean=config.overlap_mean, std=config.overlap_std)
    macro = importance.macro_with_overlap(macro, factor, occupied)
    return draw(importance.joint(macro, importance.micro_implicit(score, member), assignment), pull)


def choose_cfcl(pull: Pull) -> Selection:
    """CF-CL's selection in the mode of the run."""
    return choose_explicit(pull) if pull.config.mode == "explicit" else choose_implicit(pull)


def choose_uniform(pull: Pull) -> Selection:
    """Every candidate is as likely as any other."""
    size = (len(pull.num_items), len(pull.candidates))
    law = torch.full(size, -math.log(size[1]), dtype=torch.float64, device=pull.candidates.device)
    return draw(law, pull)


def choose_kmeans(pull: Pull) -> Selection:
    """The candidates nearest to the centroids of n clusters of their embeddings."""
    chosen = tuple(_representatives(pull, size) for size in pull.num_items)
    law = torch.full((len(chosen), len(pull.candidates)), -math.inf, dtype=torch.float64, device=pull.candidates.device)
    for row, items in zip(law, chosen, strict=True):
        row[items] = -math.log(max(len(items), 1))
    return Selection(chosen, law)


POLICIES: dict[str, Policy] = {
    "cfcl": Policy(offer=push_reserve, choose=choose_cfcl),
    "uniform": Policy(offer=None, choose=choose_uniform, scores=False),
    "kmeans": Policy(offer=None, choose=choose_kmeans),
    "bulk": Policy(offer=push_reserve, choose=choose_cfcl, once=True),
    "fedavg": Policy(offer=None, choose=None),
}


def register(name: str, policy: Policy) -> None:
    """Make `policy` available as `exchange.method = name`."""
    if name in POLICIES:
        raise CfclError(f"policy {name!r} exists already: choose another name")
    POLICIES[name] = policy


def find(name: str) -> Policy:
    """The policy called `name`."""
    if name not in POLICIES:
        raise CfclError(
            f"exchange.method={name!r} is not a known policy: choose one of {', '.join(sorted(POLICIES))}, "
            "or register it"
        )
    return POLICIES[name]


def _uniforms(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.rand(shape, dtype=torch.float64, generator=generator)


def _reserve_centroids(reserve: Tensor, pull: Pull) -> tuple[Tensor, Tensor]:
    size = pull.config.num_reserve_clusters
    if size is None:
        return reserve, torch.ones(reserve.shape[:2], dtype=torch.bool, device=reserve.device)
    found = clustering.kmeans(reserve, size, pull.uniforms("reserve-clusters", size))
    return found.centroids, found.counts > 0


def _representatives(pull: Pull, size: int) -> Tensor:
    points = pull.candidates.unsqueeze(0)
    size = min(size, points.shape[1])
    if size == 0:
        return torch.zeros(0, dtype=torch.int64, device=points.device)
    seeds = pull.draws.shared("representatives", 1, size).to(points)
    nearest = clustering.nearest_points(points, clustering.kmeans(points, size, seeds))[0]
    return nearest[nearest >= 0]
