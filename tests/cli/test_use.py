import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits
from typer.testing import CliRunner, Result

from cfcl.cli import app
from tests.use.made import encoder


def invoke(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an encoder, forty pictures of digits and labels of thirty."""
    monkeypatch.chdir(tmp_path)
    encoder(embedding_dim=16).save("encoder.safetensors")
    digits = load_digits()
    Path("pics").mkdir()
    for number in range(120):
        Image.fromarray((digits.images[number] * 15.9).astype(np.uint8)).save(f"pics/{number:03}.png")
    rows = [f"{number:03}.png,{digits.target[number]}\n" for number in range(60)]
    Path("labels.csv").write_text("name,label\n" + "".join(rows))
    return tmp_path


def files() -> set[str]:
    return {path.name for path in Path().iterdir()} - {"encoder.safetensors", "pics", "labels.csv"}


ENCODER = ("--encoder", "encoder.safetensors")


def test_embed_writes_a_row_for_each_image(work: Path) -> None:
    result = invoke("embed", "pics", *ENCODER, "--out", "e.npz")
    assert (result.exit_code, "Written: e.npz, 120 images" in result.stdout) == (0, True)
    with np.load("e.npz") as found:
        assert (found["embeddings"].shape, found["names"][119]) == ((120, 16), "119.png")
    assert invoke("embed", "pics", *ENCODER, "--out", "f.csv", "--features").exit_code == 0
    with Path("f.csv").open() as file:
        assert len(next(csv.reader(file))) == 257


def test_embed_names_what_it_skips_and_exits_with_one(work: Path) -> None:
    for number in range(12):
        Path(f"pics/{number:03}.png").write_bytes(b"no")
    result = invoke("embed", "pics", *ENCODER, "--out", "e.csv")
    assert result.exit_code == 1
    assert result.stderr.count("is not a readable image") == 10
    assert "12 images skipped, 2 of them not named here" in result.stderr
    assert len(Path("e.csv").read_text().splitlines()) == 109


def test_classify_predicts_the_rest_and_says_what_to_label(work: Path) -> None:
    result = invoke("classify", "pics", *ENCODER, "--labels", "labels.csv", "--out", "p.csv", "--next", "5")
    assert result.exit_code == 0
    assert "Cross-validated accuracy on the 60 labelled images (4 folds)" in result.stdout
    rows = list(csv.DictReader(Path("p.csv").read_text().splitlines()))
    assert [row["name"] for row in rows] == [f"{number:03}.png" for number in range(60, 120)]
    truth = load_digits().target[60:120]
    assert sum(int(row["label"]) == label for row, label in zip(rows, truth, strict=True)) > 30
    assert all(0.1 <= float(row["confidence"]) <= 1 for row in rows)
    chosen = [row["name"] for row in csv.DictReader(Path("p-next.csv").read_text().splitlines())]
    assert len(set(chosen)) == 5
    assert min(chosen) >= "060.png"
    with Image.open("p-next.png") as sheet:
        assert sheet.width > 5 * 96


def test_classify_without_labels_begins_the_work(work: Path) -> None:
    result = invoke("classify", "pics", *ENCODER)
    assert (result.exit_code, files()) == (0, {"predictions-next.csv", "predictions-next.png"})
    assert len(Path("predictions-next.csv").read_text().splitlines()) == 21
    # Filled in, it is a table of labels.
    digits = load_digits().target
    names = [line.rstrip(",") for line in Path("predictions-next.csv").read_text().splitlines()[1:]]
    filled = [f"{name},{'even' if digits[int(name[:3])] % 2 == 0 else 'odd'}" for name in names]
    Path("mine.csv").write_text("name,label\n" + "\n".join(filled))
    result = invoke("classify", "pics", *ENCODER, "--labels", "mine.csv", "--next", "0", "--embedding")
    assert (result.exit_code, "even" in result.stdout) == (0, True)
    assert len(Path("predictions.csv").read_text().splitlines()) == 101


def test_same_images_and_labels_give_the_same_bytes(work: Path) -> None:
    for name, workers in (("a", 1), ("b", 3)):
        words = ("--labels", "labels.csv", "--out", f"{name}.csv", "--workers", workers)
        assert invoke("classify", "pics", *ENCODER, *words).exit_code == 0
    for ending in (".csv", "-next.csv", "-next.png"):
        assert Path(f"a{ending}").read_bytes() == Path(f"b{ending}").read_bytes()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("embed", "gone", *ENCODER), "there is nothing at 'gone'"),
        (("embed", "empty", *ENCODER), "empty holds no image"),
        (("embed", "pics", "--encoder", "pics"), "there is no encoder at 'pics'"),
        (("embed", "pics", "--encoder", "labels.csv"), "is not an encoder written by cfcl"),
        (("embed", "pics", *ENCODER, "--out", "e.pkl"), "'e.pkl' ends in none of .npz, .csv, .parquet"),
        (("embed", "pics", *ENCODER, "--out", "labels.csv"), "'labels.csv' exists already: give --force"),
        (("embed", "pics", *ENCODER, "--device", "tpu9"), "device 'tpu9' cannot be used"),
        (("embed", "pics", *ENCODER, "--workers", "0"), "--workers"),
        (("classify", "pics", *ENCODER, "--labels", "gone.csv"), "labels 'gone.csv' cannot be read (No such file"),
        (("classify", "pics", *ENCODER, "--labels", "labels.csv", "--out", "p.txt"), "does not end in .csv"),
        (("classify", "pics", *ENCODER, "--next", "0"), "leaves nothing to do"),
        (("classify", "pics", *ENCODER, "--labels", "other.csv"), "'7.png' has a label, but is none of the 120"),
        (("classify", "pics", *ENCODER, "--labels", "single.csv"), "class 'b' has 1 label, but each needs 2"),
    ],
)
def test_bad_input_gets_one_line_and_leaves_nothing(work: Path, words: tuple[Any, ...], complaint: str) -> None:
    Path("empty").mkdir()
    Path("other.csv").write_text("name,label\n7.png,a\n")
    Path("single.csv").write_text("name,label\n001.png,a\n002.png,a\n003.png,b\n")
    before = files()
    result = invoke(*words)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert complaint in result.stderr
    assert files() == before
