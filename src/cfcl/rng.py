"""Named random streams: what is drawn depends on its name, never on the order of execution."""

import hashlib

import torch


def derive(seed: int, *names: str | int) -> int:
    """A 63-bit seed that is a pure function of `seed` and `names`."""
    key = "/".join(f"{type(name).__name__}:{name}" for name in (seed, *names))
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big") >> 1


def stream(seed: int, *names: str | int) -> torch.Generator:
    """The generator called `names` of run `seed`, always on the CPU so that every device type draws the same."""
    return torch.Generator().manual_seed(derive(seed, *names))


def uniform(seed: int, *names: str | int) -> float:
    """A number from 0 to 1, below 1, that is a pure function of `seed` and `names`: a stream's cheap first draw."""
    return (derive(seed, *names) >> 10) / 2**53


def places(total: int, most: int, seed: int, *names: str | int) -> torch.Tensor:
    """At most `most` of `total` places, a uniform draw from the stream called `names`, in order."""
    return torch.randperm(total, generator=stream(seed, *names))[:most].sort().values
