import pytest

from cfcl import methods
from cfcl.methods import Method


@pytest.mark.parametrize(
    ("word", "policy", "mode", "title", "yardstick"),
    [
        ("fedavg", "fedavg", "", "FedAvg", False),
        ("cfcl-implicit", "cfcl", "implicit", "CF-CL", False),
        ("novel-explicit", "novel", "explicit", "novel (ours)", False),
        ("oracle-implicit", "oracle", "implicit", "oracle (yardstick)", True),
        ("centralised", "centralised", "", "centralised (yardstick)", True),
    ],
)
def test_a_word_is_a_method(word: str, policy: str, mode: str, title: str, yardstick: bool) -> None:
    found = methods.parse(word)

    assert found == Method(policy, mode)
    assert (found.word, found.title, found.yardstick) == (word, title, yardstick)


def test_legends_begin_with_fedavg_and_end_with_yardsticks() -> None:
    words = ["centralised", "zebra-explicit", "bulk-explicit", "cfcl-implicit", "fedavg", "cfcl-explicit", "fedavg"]

    assert methods.ordered(words) == [
        *("fedavg", "cfcl-explicit", "cfcl-implicit", "bulk-explicit", "zebra-explicit", "centralised"),
    ]
