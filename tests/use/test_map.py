import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from cfcl import page
from cfcl.cli import app
from cfcl.use import map as mapping
from cfcl.use.embedding import Vectors


def invoke(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["map", *map(str, words)])


def complaint(*words: str | Path) -> str:
    result = invoke(*words)
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.splitlines()
    return line


def inside(file: Path) -> dict[str, Any]:
    text = file.read_text()
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found
    data: dict[str, Any] = json.loads(found[1])
    return data


def test_the_page_holds_all_it_shows(tmp_path: Path, photos: Path, encoder: Path) -> None:
    out = tmp_path / "new" / "map.html"
    result = invoke(photos, "--encoder", encoder, "--out", out)
    assert result.exit_code == 0, result.output
    assert "12 of 12 images, 1 pairs of near-duplicates" in result.stdout
    data = inside(out)
    assert data["names"] == [f"cats/{place:02}.png" for place in range(6)] + [
        f"dogs & <b>/{place:02}.png" for place in range(6, 12)
    ]
    assert data["groups"] == [["cats", "#0072B2", 6], ["dogs & <b>", "#E69F00", 6]]
    assert data["members"] == [0] * 6 + [1] * 6
    assert data["pairs"] == [[0, 11, "0.000"]]
    assert len(data["outliers"]) == 2
    assert data["sizes"] == [[8, 8]] * 12
    text = out.read_text()
    assert "<b>/" not in text  # names do not become markup
    assert not re.search(r"https?:|\ssrc=\"(?!data:)|@import|url\(", text)
    assert text.count("<script") == 2
    before = out.read_bytes()
    assert "exists already: give --force" in complaint(photos, "--encoder", encoder, "--out", out)
    assert invoke(photos, "--encoder", encoder, "--out", out, "--force", "--workers", "3").exit_code == 0
    assert out.read_bytes() == before


def test_a_name_does_not_end_the_data_of_the_page() -> None:
    found = page.data({"name": "<!-- a</script><b>&\u2028"}, id="data")
    assert found.count("<") == 2  # the element's own
    assert json.loads(found[found.index(">") + 1 : found.rindex("<")]) == {"name": "<!-- a</script><b>&\u2028"}


def test_arrays_and_features_make_a_map_too(tmp_path: Path, encoder: Path) -> None:
    np.savez(tmp_path / "a.npz", images=np.random.default_rng(0).integers(0, 256, (7, 9, 5, 3), dtype=np.uint8))
    result = invoke(tmp_path / "a.npz", "--encoder", encoder, "--out", tmp_path / "map.html", "--features")
    assert result.exit_code == 0, result.output
    data = inside(tmp_path / "map.html")
    assert (data["groups"], data["members"]) == ([], [-1] * 7)
    assert data["sizes"] == [[5, 9]] * 7


@pytest.mark.parametrize("number", [1, 2, 4])
def test_a_few_images_are_enough(tmp_path: Path, encoder: Path, number: int) -> None:
    np.savez(tmp_path / "a.npz", images=np.random.default_rng(0).integers(0, 256, (number, 8, 8), dtype=np.uint8))
    result = invoke(tmp_path / "a.npz", "--encoder", encoder, "--out", tmp_path / "map.html")
    assert result.exit_code == 0, result.output
    assert len(inside(tmp_path / "map.html")["x"]) == number


def test_what_cannot_be_is_refused_in_one_line(tmp_path: Path, photos: Path, encoder: Path) -> None:
    (tmp_path / "empty").mkdir()
    np.savez(tmp_path / "whole.npz", images=np.zeros((50, 8, 8), np.uint8))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "whole.npz").read_bytes()[:2000])
    before = sorted(tmp_path.iterdir())
    rest = ("--encoder", encoder, "--out", tmp_path / "map.html")
    assert "empty holds no image" in complaint(tmp_path / "empty", *rest)
    assert "cut.npz" in complaint(tmp_path / "cut.npz", *rest)
    assert "there is nothing at" in complaint(tmp_path / "nothing", *rest)
    assert "there is no encoder at" in complaint(photos, "--encoder", tmp_path, "--out", tmp_path / "map.html")
    wrong = complaint(photos, "--encoder", encoder, "--out", tmp_path / "map.png")
    assert "map.png' does not end in .html" in wrong
    nowhere = complaint(photos, "--encoder", encoder, "--out", tmp_path / "whole.npz" / "map.html")
    assert "map.html': " in nowhere
    assert nowhere.endswith("; choose another --out")
    assert sorted(tmp_path.iterdir()) == before


def test_what_cannot_be_read_is_named_and_left_out(tmp_path: Path, encoder: Path) -> None:
    for place in range(3):
        Image.new("L", (20, 20), 50 * place).save(tmp_path / f"{2 * place}.png")
    (tmp_path / "1.png").write_bytes(b"no picture")
    result = invoke(tmp_path, "--encoder", encoder, "--out", tmp_path / "out" / "map.html")
    assert result.exit_code == 1
    assert "1.png is not a readable image" in result.stderr
    assert inside(tmp_path / "out" / "map.html")["names"] == ["0.png", "2.png", "4.png"]


def test_of_too_many_the_listed_and_those_far_apart_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapping, "MAX_DRAWN", 5)
    values = np.array([[0.0], [1], [2], [3], [4], [5], [5], [40]], np.float32) * 1000
    vectors = Vectors([f"{place}.png" for place in range(8)], values, list(range(100, 108)), [])

    found = mapping.draw(vectors, "embedding")

    # the pair 5, 6 and the outlier 7 first; then 0, the farthest from 5; then 2 and 3, which are 2 away: the first
    assert found.places == [100, 102, 105, 106, 107]
    assert found.names == ["0.png", "2.png", "5.png", "6.png", "7.png"]
    assert [pair[:2] for pair in found.pairs] == [(2, 3)]
    assert [item.position for item in found.outliers] == [4]
    assert (found.num_images, found.num_pairs, found.points.shape) == (8, 1, (5, 2))
    images = [Image.new("L", (8, 8))] * 5
    text = mapping.render(found, images, title="x", encoder="y")
    assert "5 of 8 images, chosen to lie far apart, under the encoder y; 1 pair of near-duplicates." in text


def test_groups_are_the_folders_below_the_one_that_all_share() -> None:
    assert mapping.groups(["a/1.png", "b/c/2.png", "3.png"]) == ["a", "b", ""]
    assert mapping.groups(["x/a/1.png", "x/b/2.png", "x/b/c/3.png"]) == ["a", "b", "b"]
    assert mapping.groups(["/x/a/1.png", "/x/ab/2.png"]) == ["a", "ab"]
    assert mapping.groups(["/x/a/1.png", "b/2.png"]) == ["x", "b"]
    assert mapping.groups(["0", "1"]) == ["", ""]


def test_the_smallest_groups_share_a_colour_where_there_are_many() -> None:
    names = [f"{letter}/{place}.png" for number, letter in enumerate("abcdefghijkl") for place in range(12 - number)]
    entries, members = mapping.legend(names)
    assert len({colour for _, colour, _ in entries}) == len(entries) == 10
    assert entries[0] == ("a", "#0072B2", 12)
    assert entries[9] == ("3 more sub-folders", "#B8BDC4", 3 + 2 + 1)
    assert members[:12] == [0] * 12
    assert members[-6:] == [9] * 6
    assert mapping.legend(["a/1.png", "2.png"])[0][0] == ("(in no sub-folder)", "#0072B2", 1)
    assert mapping.legend(["a/1.png", "a/2.png"]) == ([], [-1, -1])
