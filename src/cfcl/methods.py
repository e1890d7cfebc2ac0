"""Methods as values: a selection policy and a mode, in one word such as `cfcl-explicit`, and how people see them."""

from collections.abc import Iterable
from dataclasses import dataclass

MODES = ("explicit", "implicit")
ALONE = ("fedavg", "centralised")
"""Policies without exchange, and so without a mode."""
YARDSTICKS = ("oracle", "centralised")
"""Policies that show how much room there is and never count as competitors."""
TITLES = {"fedavg": "FedAvg", "cfcl": "CF-CL", "uniform": "uniform", "kmeans": "K-means", "bulk": "bulk"}
"""The policies of the paper, in the order of legends and tables."""


@dataclass(frozen=True)
class Method:
    """What a run does about exchange."""

    policy: str
    """Such as `cfcl`."""
    mode: str = ""
    """`explicit` or `implicit`; empty without exchange."""

    @property
    def word(self) -> str:
        """Such as `cfcl-explicit`, or `fedavg`."""
        return f"{self.policy}-{self.mode}" if self.mode else self.policy

    @property
    def yardstick(self) -> bool:
        """Whether it only shows how much room there is."""
        return self.policy in YARDSTICKS

    @property
    def title(self) -> str:
        """The policy for people: what is neither of the paper nor a yardstick is ours, and says so."""
        return TITLES.get(self.policy) or f"{self.policy} ({'yardstick' if self.yardstick else 'ours'})"

    @property
    def rank(self) -> tuple[bool, int, str, str]:
        """Where it stands in legends and tables: FedAvg first, ours after the paper's, yardsticks last."""
        known = list(TITLES).index(self.policy) if self.policy in TITLES else len(TITLES)
        return self.yardstick, known, self.policy, self.mode


def parse(word: str) -> Method:
    """The method that `word` names."""
    policy, _, mode = word.partition("-")
    return Method(policy, mode)


def ordered(words: Iterable[str]) -> list[str]:
    """Words of methods in the order of legends and tables, each once."""
    return sorted(set(words), key=lambda word: parse(word).rank)
