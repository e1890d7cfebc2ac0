from pathlib import Path

import pytest

from cfcl.errors import CfclError
from cfcl.use import labels

NAMES = [f"{number}.png" for number in range(6)]


def write(folder: Path, content: str) -> Path:
    (folder / "labels.csv").write_text(content)
    return folder / "labels.csv"


def test_labels_are_read_and_blank_ones_passed_over(tmp_path: Path) -> None:
    content = "\ufeffname,label,who\na.png,cat,me\n b.png , dog ,you\nc.png,,me\nd.png\na.png,cat,you\n"
    assert labels.read(write(tmp_path, content)) == {"a.png": "cat", "b.png": "dog"}


def test_labels_become_places_and_numbers() -> None:
    given = {"5.png": "b", "0.png": "a", "3.png": "b", "1.png": "a", "gone.png": "a"}
    found = labels.match(given, NAMES, ["gone.png"])
    assert (found.positions, found.numbers, found.classes) == ((0, 1, 3, 5), (0, 0, 1, 1), ("a", "b"))
    assert found.counts() == [2, 2]


def test_classes_that_are_numbers_come_in_their_order() -> None:
    given = dict(zip(NAMES, ["10", "9", "x", "10", "9", "x"], strict=True))
    assert labels.match(given, NAMES).classes == ("9", "10", "x")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "hold no label: it is a CSV file in UTF-8 with a line `name,label`"),
        ("name,label\na.png,\n", "hold no label"),
        ("file,class\na.png,cat\n", "line 2: not a `name` and a `label`"),
        ("name,label\na.png,cat,dog\n", "line 2: not a"),
        ("name,label\na.png,cat\na.png,dog\n", "line 3: 'a.png' is 'dog' here and 'cat' above: remove one"),
        ('name,label\n"a.png,cat\n', "cannot be read"),
    ],
)
def test_bad_labels_are_refused_in_one_line(tmp_path: Path, content: str, complaint: str) -> None:
    with pytest.raises(CfclError, match=complaint):
        labels.read(write(tmp_path, content))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CfclError, match="No such file"):
        labels.read(tmp_path / "gone.csv")


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"7.png": "a"}, r"'7.png' has a label, but is none of the 6 images, the first of which is '0.png'"),
        ({"0.png": "a", "1.png": "a"}, r"the labels are of 1 class \('a'\)"),
        ({"0.png": "a", "1.png": "a", "2.png": "b"}, "class 'b' has 1 label, but each needs 2"),
    ],
)
def test_labels_that_do_not_fit_are_refused(given: dict[str, str], complaint: str) -> None:
    with pytest.raises(CfclError, match=complaint):
        labels.match(given, NAMES)
