"""What policies give back is looked at before it is used: a policy may be anybody's, and NaN travels without a word."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from cfcl.config import ExchangeConfig
from cfcl.errors import CfclError
from cfcl.exchange.policies import Choice, Policy, Pull, Randomness


def choose(policy: Policy, pull: Pull) -> Choice:
    """What `policy` chooses, if that can be sent."""
    assert policy.choose is not None
    found = policy.choose(pull)
    _refuse(pull.config, _choice_fault(found, pull) or _newness_fault(policy, found, pull))
    return found


def offer(
    policy: Policy, points: Float[Tensor, "points pixels"], size: int, config: ExchangeConfig, draws: Randomness
) -> Int[Tensor, " reserve"]:
    """What `policy` offers, if that can be sent."""
    assert policy.offer is not None
    found = policy.offer(points, size, config, draws)
    _refuse(config, offering_fault(found, len(points), size))
    return found


def measure(
    policy: Policy,
    own: Float[Tensor, "points pixels"],
    reserve: Float[Tensor, "reserve pixels"],
    config: ExchangeConfig,
) -> Float[Tensor, " reserve"] | None:
    """The numbers that `policy` sends with a reserve, if it sends any and they can be sent."""
    if policy.measure is None:
        return None
    found = policy.measure(own, reserve)
    _refuse(config, _measure_fault(found, len(reserve)))
    return found


def _refuse(config: ExchangeConfig, fault: str | None) -> None:
    if fault:
        raise CfclError(f"exchange.method={config.method!r} cannot be used: {fault}; fix the policy")


def offering_fault(offering: object, num_points: int, most: int) -> str | None:
    """Why up to `most` of a device's points cannot be shown like this, if there is a reason."""
    if not isinstance(offering, Tensor):
        return f"it offers {type(offering).__name__}, not a tensor of positions"
    if fault := _places_fault([offering], num_points):
        return fault
    found = len(offering)
    return None if 0 < found <= most else f"it offers {found} points, where 1 to {most} are due"


def _measure_fault(numbers: object, size: int) -> str | None:
    if isinstance(numbers, Tensor) and numbers.dtype == torch.float32 and numbers.shape == (size,):
        return None if bool(numbers.isfinite().all()) else "what it measures is not finite"
    return f"what it measures is not {size} numbers in float32, one with each point of the reserve"


def _choice_fault(choice: object, pull: Pull) -> str | None:
    if not isinstance(choice, Choice):
        return f"it chooses {type(choice).__name__}, not a Choice"
    links, candidates = pull.candidates.embeddings.shape[:2]
    for name, values in _tables(choice).items():
        if not isinstance(values, Tensor) or values.shape != (links, candidates):
            return f"its {name} is not a tensor of {links} links by {candidates} candidates"
    law = choice.log_probabilities
    if not law.is_floating_point() or bool((law.isnan() | law.isposinf()).any()):
        return "its law has entries that are no logarithm of a probability (NaN where a model has diverged)"
    if len(choice.chosen) != links:
        return f"it chooses for {len(choice.chosen)} links, where {links} are due"
    if fault := _places_fault(choice.chosen, candidates):
        return fault
    excess = [most for part, most in zip(choice.chosen, pull.num_items, strict=True) if len(part) > most]
    return f"it chooses more items than the {excess[0]} that a receiver asks for" if excess else None


def _newness_fault(policy: Policy, choice: Choice, pull: Pull) -> str | None:
    if pull.config.budget == "fixed" or policy.newness is None or policy.newness in choice.scores:
        return None
    return f"its newness is the score {policy.newness!r}, but it gives {sorted(choice.scores)}"


def _tables(choice: Choice) -> dict[str, object]:
    """All that has an entry for every candidate of every link."""
    stages = choice.stages
    return {
        "law": choice.log_probabilities,
        **({} if stages is None else {"clusters": stages.clusters, "macro": stages.macro, "micro": stages.micro}),
        **{f"score {name!r}": values for name, values in choice.scores.items()},
    }


def _places_fault(places: Sequence[object], size: int) -> str | None:
    """What is wrong with positions among `size` points, one tensor per link, if anything."""
    known = [part for part in places if isinstance(part, Tensor) and part.dtype == torch.int64 and part.ndim == 1]
    if len(known) != len(places):
        return "positions are not in 1-D tensors of int64"
    flat = torch.cat(known)
    if bool(((flat < 0) | (flat >= size)).any()):
        return f"positions are not all in 0..{size - 1}"
    apart = torch.cat([part + link * size for link, part in enumerate(known)])
    return "a position occurs twice" if len(set(apart.tolist())) < len(apart) else None
