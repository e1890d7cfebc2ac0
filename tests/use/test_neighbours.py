import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from cfcl.cli import app
from cfcl.use import load_encoder, neighbours, sources

DOGS = "dogs & <b>"


def invoke(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["neighbours", *map(str, words)])


def complaint(*words: str | Path) -> str:
    result = invoke(*words)
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.splitlines()
    assert result.stdout.strip() == ""
    return line


def test_an_image_of_the_gallery_is_first_and_its_copy_second(photos: Path, encoder: Path) -> None:
    trained = load_encoder(encoder)
    queries = sources.find(photos / "cats" / "00.png")

    (found,), skipped = neighbours.answer(queries, neighbours.Gallery(sources.find(photos)), trained, 3)

    assert skipped == []
    assert found.name == "00.png"
    assert [item.name for item in found.neighbours[:2]] == ["cats/00.png", f"{DOGS}/11.png"]
    assert [item.distance for item in found.neighbours[:2]] == pytest.approx([0, 0], abs=1e-5)
    vectors = trained.embed([photos / "cats" / "00.png", photos / found.neighbours[2].name])
    assert found.neighbours[2].distance == pytest.approx(float((vectors[0] - vectors[1]).norm()), abs=1e-5)
    assert found.neighbours[2].distance > 0.01


def test_the_command_writes_a_sheet_and_a_page_and_prints_a_table(tmp_path: Path, photos: Path, encoder: Path) -> None:
    out, page = tmp_path / "new" / "sheet.png", tmp_path / "page.html"
    words: list[str | Path] = [
        photos / "cats" / "00.png",
        "--among",
        photos,
        "--encoder",
        encoder,
        "--out",
        out,
        "--html",
        page,
    ]

    result = invoke(*words)

    assert result.exit_code == 0, result.output
    assert re.search(r"0\.000 +cats/00\.png", result.stdout)
    assert "Written:" in result.stdout
    with Image.open(out) as picture:
        assert picture.size == (4 + 12 + 11 * 100, 4 + 96 + 4 + 2 * 15 + 4)  # the query and ten more
    text = page.read_text()
    assert text.count("<figure") == 11
    assert text.count('src="data:image/png;base64,') == 11
    assert "<b>/" not in text
    assert "dogs &amp; &lt;b&gt;/11.png" in text
    assert "<script" not in text
    before = (out.read_bytes(), page.read_bytes())
    assert "exists already: give --force" in complaint(*words)
    assert invoke(*words, "--force").exit_code == 0
    assert (out.read_bytes(), page.read_bytes()) == before


def test_a_folder_of_queries_gives_a_row_each(tmp_path: Path, photos: Path, encoder: Path) -> None:
    out = tmp_path / "sheet.png"
    result = invoke(photos / "cats", "--among", photos, "--encoder", encoder, "--out", out, "--number", "2")
    assert result.exit_code == 0, result.output
    with Image.open(out) as picture:
        assert picture.size == (4 + 12 + 3 * 100, 4 + 6 * 138 - 6 * 4)
    for number in range(6):
        assert re.search(rf"0{number}\.png +cats/0{number}\.png +0\.000", result.stdout)


@pytest.mark.parametrize("features", [False, True])
@pytest.mark.parametrize("suffix", [".npz", ".csv"])
def test_a_file_of_embeddings_gives_the_same_sheet(
    tmp_path: Path, photos: Path, encoder: Path, features: bool, suffix: str
) -> None:
    more = ["--features"] if features else []
    table = tmp_path / f"table{suffix}"
    embedded = CliRunner().invoke(app, ["embed", str(photos), "--encoder", str(encoder), "--out", str(table), *more])
    assert embedded.exit_code == 0
    common: list[str | Path] = [photos / "cats" / "03.png", "--encoder", encoder, *more]
    assert invoke(*common, "--among", photos, "--out", tmp_path / "a.png").exit_code == 0
    result = invoke(*common, "--among", table, "--images", photos, "--out", tmp_path / "b.png")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_embeddings_of_something_else_are_refused(tmp_path: Path, photos: Path, encoder: Path) -> None:
    rows = np.zeros((2, 4), np.float32)
    table, out = tmp_path / "table.npz", tmp_path / "sheet.png"
    common: list[str | Path] = [photos / "cats" / "00.png", "--encoder", encoder, "--among", table, "--out", out]

    def save(values: object, **more: str) -> None:
        np.savez(table, embeddings=values, names=np.array(["cats/00.png", "gone.png"]), **more)  # type: ignore[arg-type]

    save(rows, encoder="0123456789abcdef")
    assert "was made by another encoder (its digest begins with 0123456789ab, this one's with" in complaint(*common)
    save(rows, space="features")
    assert "holds no embeddings, but features: add --features" in complaint(*common)
    save(np.zeros((2, 5), np.float32))
    assert "holds vectors of 5 numbers, and this encoder makes 4: run `cfcl embed`" in complaint(*common)
    save(rows)
    assert "holds embeddings but no pictures: give --images" in complaint(*common)
    assert "'gone.png' too, but it is not among the pictures of --images" in complaint(*common, "--images", photos)
    table.write_bytes(table.read_bytes()[:300])
    assert str(table) in complaint(*common, "--images", photos)
    assert list(tmp_path.iterdir()) == [table]


def test_what_cannot_be_is_refused_in_one_line(tmp_path: Path, photos: Path, encoder: Path) -> None:
    (tmp_path / "bad.png").write_bytes(b"no picture")
    (tmp_path / "empty").mkdir()
    np.savez(tmp_path / "many.npz", images=np.zeros((51, 8, 8), np.uint8))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "many.npz").read_bytes()[:2000])
    before = sorted(tmp_path.iterdir())
    one, rest = photos / "cats" / "00.png", ("--encoder", encoder, "--out", tmp_path / "sheet.png")

    assert "bad.png is not a readable image" in complaint(tmp_path / "bad.png", "--among", photos, *rest)
    assert "empty holds no image" in complaint(one, "--among", tmp_path / "empty", *rest)
    assert "there is nothing at" in complaint(tmp_path / "nothing", "--among", photos, *rest)
    assert "holds 51 images, but at most 50" in complaint(tmp_path / "many.npz", "--among", photos, *rest)
    assert "cut.npz" in complaint(one, "--among", tmp_path / "cut.npz", *rest)
    assert "leave --images out" in complaint(one, "--among", photos, "--images", photos, *rest)
    wrong = complaint(one, "--among", photos, "--encoder", encoder, "--out", tmp_path / "sheet.jpg")
    assert "sheet.jpg' does not end in .png" in wrong
    assert "--html" in complaint(one, "--among", photos, *rest, "--html", tmp_path / "page.txt")
    assert "--number" in complaint(one, "--among", photos, *rest, "--number", "0")
    assert sorted(tmp_path.iterdir()) == before


def test_what_cannot_be_read_is_named_and_left_out(tmp_path: Path, encoder: Path) -> None:
    for name in ("a", "c"):
        Image.new("RGB", (300, 100), "red").save(tmp_path / f"{name}.png")
    (tmp_path / "b.png").write_bytes(b"no picture")
    result = invoke(tmp_path, "--among", tmp_path, "--encoder", encoder, "--out", tmp_path / "out" / "s.png")
    assert result.exit_code == 1
    assert "b.png is not a readable image" in result.stderr
    with Image.open(tmp_path / "out" / "s.png") as picture:
        # two rows of a query and two neighbours, each 192×64 as colour pictures of 300×100 are shown
        assert picture.size == (4 + 12 + 3 * 196, 4 + 2 * (64 + 4 + 2 * 15 + 4))
        assert picture.getpixel((10, 10)) == (255, 0, 0)
