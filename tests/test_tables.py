"""Tables and pictures of docs/results/encoder: intervals by hand, and tables that are not finished yet."""

import csv
import json
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
against, drawn, tables = (import_module(name) for name in ("against", "tables_drawn", "tables"))
attacks, attacks_drawn = (import_module(name) for name in ("attacks", "attacks_drawn"))

Space = tuple[float, float]
"""Accuracy with ten labels per class, and with all."""


def evaluation(step: int, embedding: Space, features: Space = (0.5, 0.5)) -> list[Any]:
    few = [{"1": ten / 2, "10": ten, "100": ten} for ten, _ in (embedding, features)]
    return [step, embedding[1], few[0], features[1], few[1], 9.0]


def run(table: str, name: str, seed: int, *tens: float, every: int = 60) -> dict[str, Any]:
    """A record of a row whose embedding has these accuracies with ten labels, and 0.1 more with all."""
    row = next(row for row in tables.TABLES[table][0] if row.name == name)
    lines = [evaluation(every * place, (ten, ten + 0.1)) for place, ten in enumerate(tens)]
    last = {"seconds": 1.0, "item_bytes": 100 + len(name), "bytes_d2d": 0, "bytes_up": 0}
    keys = {"digest": row.config(seed).digest, "table": table, "row": name, "method": row.method, "seed": seed}
    return {**keys, "steps": 600, **last, "evaluations": json.dumps(lines)}


def known(*runs: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["digest"]: {**one, "evaluations": json.loads(one["evaluations"])} for one in runs}


# Two draws of labels, four images
OURS = [[[1, 1, 1, 0], [1, 1, 0, 0]], [[1, 1, 0, 0], [0, 0, 1, 1]]]
OTHER = [[[1, 0, 0, 0], [1, 0, 0, 1]], [[1, 0, 1, 0], [0, 0, 1, 1]]]


def hits(seeds: list[list[list[int]]]) -> list[torch.Tensor]:
    return [torch.tensor(seed).bool() for seed in seeds]


def test_differences_of_pairs_count_seeds_and_images_by_hand() -> None:
    mean, half = against.gain(hits(OURS), hits(OTHER))

    # differences by image, means over draws: 0, 1, 0.5, -0.5 and 0, 0.5, -0.5, 0. Seeds: 25 and 0 points, deviation
    # 17.678, over sqrt 2 = 12.5, times 12.71 = 158.875. Images: 0, 75, 0, -25, variance (156.25 + 3906.25 + 156.25 +
    # 1406.25) / 3 = 1875; 1.96 * sqrt(1875 / 4) = 42.435
    assert mean == pytest.approx(12.5)
    assert half == pytest.approx(164.4446, abs=1e-3)


def test_of_one_seed_images_alone_count() -> None:
    # 0, 100, 50, -50: variance (625 + 5625 + 625 + 5625) / 3 = 4166.67; 1.96 * sqrt(4166.67 / 4) = 63.257
    assert against.gain(hits(OURS)[:1], hits(OTHER)[:1]) == pytest.approx((25.0, 63.2579), abs=1e-3)


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        # 1.96 * sqrt((0.9 * 0.1 + 0.8 * 0.2) / 100) = 0.098
        ([(90.0, 80.0)], "+10.0 ± 9.8"),
        # shares 0.8 and 0.9 on average; seeds: -16 and -4, deviation 8.485, over sqrt 2 = 6, times 12.71 = 76.26
        ([(76.0, 92.0), (84.0, 88.0)], "-10.0 ± 76.9"),
    ],
)
def test_without_pairs_of_images_the_errors_of_both_sides_add_up(
    pairs: list[tuple[float, float]], expected: str
) -> None:
    assert drawn.over(pairs, 100) == expected


def test_levels_are_means_of_the_last_fifth() -> None:
    lines = [evaluation(step, (0.1 * step, 0.9), (0.2, 0.05 * step)) for step in range(10)]
    # steps 8 and 9
    assert drawn.levels(lines, "embedding") == pytest.approx({"1": 42.5, "10": 85.0, "100": 85.0, "all": 90.0})
    assert drawn.levels(lines, "features") == pytest.approx({"1": 10.0, "10": 20.0, "100": 20.0, "all": 42.5})


def test_a_row_is_compared_with_its_own_fedavg_or_with_none() -> None:
    found = drawn.table(
        "objectives",
        known(
            run("objectives", "infonce, fedavg", 190, 0.5, 0.6),
            run("objectives", "infonce, uniform-explicit", 190, 0.5, 0.7),
            run("objectives", "dcl, uniform-explicit", 190, 0.5, 0.8),
        ),
    )
    rows = {cells[1].strip(): cells[4].strip() for cells in (line.split("|") for line in found.splitlines()[2:])}
    assert rows == {"infonce, fedavg": "", "infonce, uniform-explicit": "10.0", "dcl, uniform-explicit": ""}


def test_curves_have_the_steps_that_all_seeds_have() -> None:
    found = drawn.curves(
        known(
            run("objectives", "vicreg, uniform-explicit", 190, 0.5, 0.6, 0.7),
            run("objectives", "vicreg, uniform-explicit", 191, 0.5, 0.8, every=120),
            run("objectives", "dcl, cfcl-explicit", 190, 0.5),
        )
    )
    assert list(found) == ["vicreg"]
    assert found["vicreg"] == {
        0: pytest.approx([50.0, 50.0]),
        120: pytest.approx([70.0, 80.0]),
    }


def test_what_is_compared_again_takes_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "PAIRED", tmp_path / "paired.csv")
    for name, row, mean in (("usps", "fedavg", 1.0), ("digits", "fedavg", 2.0), ("usps", "fedavg", 3.0)):
        against.write(name, row, [("features", "10", "raw pixels", 2, mean, 0.5)])
    assert [(line["set"], line["gain"]) for line in tables.read_paired()] == [("digits", "2.0000"), ("usps", "3.0000")]


@pytest.fixture
def partly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Records of tables of which little is done."""
    runs = [
        run("usps", "fedavg", 190, 0.5, 0.6),
        run("usps", "fedavg", 191, 0.5, 0.65),
        run("usps", "uniform-explicit", 190, 0.5, 0.7),
        run("dial", "uniform-implicit", 191, 0.5, 0.6),
        run("objectives", "dcl, uniform-explicit", 190, 0.5, 0.7),
    ]
    (tmp_path / "docs").mkdir()
    for place, name in (("RUNS", "runs.csv"), ("YARDSTICKS", "yardsticks.csv"), ("PAIRED", "paired.csv")):
        monkeypatch.setattr(tables, place, tmp_path / name)
    monkeypatch.setattr(drawn, "HERE", tmp_path / "docs")
    with tables.RUNS.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, tables.FIELDS)
        writer.writeheader()
        writer.writerows(runs)
    lines = ["set,seed,name,dim,1,10,100,all"]
    lines += [f"usps,{seed},raw pixels,256,0.5,0.6,0.7,0.8" for seed in (190, 191)]
    tables.YARDSTICKS.write_text("\n".join(lines) + "\n")
    return tmp_path / "docs"


def test_what_is_there_is_drawn_twice_to_the_same_bytes(partly: Path) -> None:
    drawn.draw(list(tables.TABLES))
    first = {file.name: file.read_bytes() for file in partly.iterdir()}
    drawn.draw(list(tables.TABLES))

    assert {file.name: file.read_bytes() for file in partly.iterdir()} == first
    assert sorted(first) == ["README.md", "dial.png", "seconds.png", "worth.png"]
    page = first["README.md"].decode()
    # the mean of the last of two evaluations; one of five seeds has both rows
    assert "| uniform-explicit | 80.0 | 70.0 | 10.0 |" in page
    # over 2,007 images: 196 * sqrt((0.7 * 0.3 + 0.6 * 0.4) / 2007) = 2.9, and sqrt((0.8 * 0.2) * 2 / 2007) for all
    assert "| raw pixels | 256 | 50.0 | 60.0 | 70.0 | 80.0 | +10.0 ± 2.9 | +0.0 ± 2.5 |" in page
    assert "svhn" not in page


def test_the_dial_spans_what_an_item_weighs(partly: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: limits.append(figure.axes[0].get_xlim()))
    drawn.draw(["dial"])
    # an embedding of 32 floats has 128 bytes, 12,288 are the activations of the first block
    assert limits[-1] == (80, 40_000)


def test_differences_by_image_come_first_where_all_seeds_have_them(partly: Path) -> None:
    against.write("usps", "uniform-explicit", [("embedding", "10", "raw pixels", 1, 11.04, 1.26)])
    drawn.draw(["usps"])
    assert "| 80.0 | **+11.0 ± 1.3** | +0.0 ± 2.5 |" in (partly / "README.md").read_text()


def test_all_data_in_one_place_is_one_of_the_rows(partly: Path) -> None:
    with tables.RUNS.open("a", encoding="utf-8", newline="") as file:
        csv.DictWriter(file, tables.FIELDS).writerow(run("usps", "centralised", 190, 0.5, 0.72))
        csv.DictWriter(file, tables.FIELDS).writerow(run("usps", "centralised", 192, 0.5, 0.74))
    drawn.draw(["usps"])
    page = (partly / "README.md").read_text()
    # of the seed that both have, 70 - 72 and 80 - 82, over 2,007 images:
    # 196 * sqrt((0.7 * 0.3 + 0.72 * 0.28) / 2007) = 2.8, 196 * sqrt((0.8 * 0.2 + 0.82 * 0.18) / 2007) = 2.4
    row = "| all data in one place, embedding |  | 36.0 | 72.0 | 72.0 | 82.0 | -2.0 ± 2.8 | -2.0 ± 2.4 |"
    assert row in page
    # what it makes of features is 50 throughout, as what devices do
    assert "| all data in one place, features |  | 25.0 | 50.0 | 50.0 | 50.0 | +20.0 ± 3.0 |" in page


def test_what_was_evaluated_seldom_is_named(partly: Path) -> None:
    with tables.RUNS.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, tables.FIELDS)
        writer.writerow(run("objectives", "vicreg, fedavg", 190, 0.5, 0.6, 0.7))
        writer.writerow(run("objectives", "byol, cfcl-implicit", 190, *[0.5] * 11) | {"seconds": 7195.0})
    drawn.draw(["objectives"])
    page = (partly / "README.md").read_text()
    assert "evaluated seldom (`infonce`: 2, `dcl`: 2, `vicreg`: 3 evaluations, the untrained" in page
    # five runs of a second, one more, and 7,195 s
    assert "The 7 runs took 2 hours of one core." in page


def test_further_stages_have_a_sentence_below_the_table(partly: Path) -> None:
    lines = [("block2", "10", "raw pixels", 1, 2.04, 1.0), ("block2", "all", "raw pixels", 1, -3.0, 0.96)]
    against.write("usps", "uniform-explicit", lines)
    drawn.draw(["usps"])
    said = (
        "*uniform-explicit, block2* after training, over, with ten labels and with all: raw pixels **+2.0 ± 1.0** and"
    )
    assert f"{said} **-3.0 ± 1.0**." in (partly / "README.md").read_text()


def test_spaces_and_stages_are_held_against_all_else() -> None:
    right, wrong = torch.ones(1, 4, dtype=torch.bool), torch.zeros(1, 4, dtype=torch.bool)
    names = {"embedding": right, "block2": wrong, "raw pixels": wrong, "untrained, block2": right}
    found = [{name: {"all": hit, "10": hit} for name, hit in names.items()}]

    lines = against.compare(found, ("embedding", "block2"))

    ten = [(space, other, mean) for space, labels, other, _, mean, _ in lines if labels == "10"]
    assert ten == [
        ("embedding", "raw pixels", 100.0),
        ("embedding", "untrained, block2", 0.0),
        ("block2", "raw pixels", 0.0),
        ("block2", "untrained, block2", -100.0),
    ]


CASES = {
    # attack, hostile devices, defence: points against the clean run of the seed; None for a run that did not end
    ("items-noise", 1, "none"): -5.0,
    ("items-noise", 1, "range"): -0.5,
    ("items-negative", 1, "none"): -5.0,
    ("items-negative", 1, "range"): -2.0,
    ("items-constant", 1, "none"): -0.3,
    ("flood", 1, "none"): -4.0,
    ("flood", 1, "cap"): -1.5,
    ("model-flipped", 3, "none"): None,
    ("model-flipped", 3, "median"): -0.9,
    ("model-flipped", 3, "trimmed"): 0.1,
    ("model-flipped", 3, "clipped"): -3.0,
}


@pytest.fixture
def attacked(tmp_path: Path) -> Any:
    """Records of some attacks, and of nobody's; clean runs have 80 % and 82 %."""
    plan = attacks.Plan(tmp_path / "attacks", seeds=(203, 204))
    plan.out.mkdir()
    clean = {(table, "none", 0, "none"): 0.0 for table in ("explicit", "models")}
    planned = {("models" if key[0].startswith("model") else "explicit", *key): value for key, value in CASES.items()}
    seen = set()
    for (table, *rest), points in {**clean, **planned}.items():
        for seed, level in ((203, 80.0), (204, 82.0)):
            case = attacks.Case(table, *rest)
            digest = plan.digest(case, seed)
            if digest in seen:
                continue
            seen.add(digest)
            lines = [[0, 0.5], [300, (level + (points or 0.0)) / 100]]
            made = {"digest": digest, "table": table, "attack": rest[0], "hostile": rest[1], "defence": rest[2]}
            more = {"seed": seed, "seconds": 1.0, "got": 0, "held": "", "failed": "" if points is not None else "NaN"}
            attacks._write(plan, {**made, **more, "evaluations": json.dumps(lines)})
    return plan


def test_every_attack_has_the_defences_that_keep_its_loss_under_a_point_or_none(attacked: Any) -> None:
    rows = [line.split(" | ") for line in attacks_drawn.summary(attacked, attacked.read()).splitlines()[2:]]
    verdicts = {(row[0].removeprefix("| "), row[1]): (row[3], row[-1].removesuffix(" |")) for row in rows}
    assert verdicts == {
        ("items-noise", "1"): ("−5.0 ± 0.0", "range"),
        ("items-negative", "1"): ("−5.0 ± 0.0", "none"),
        ("items-constant", "1"): ("−0.3 ± 0.0", "no defence needed"),
        ("flood", "1"): ("−4.0 ± 0.0", "none of those tried"),
        ("model-flipped", "3"): ("ends", "median, trimmed"),
    }


def test_the_page_of_attacks_shows_its_pictures(attacked: Any) -> None:
    attacks_drawn.draw(attacked)
    text = (attacked.out / "README.md").read_text()
    for name in ("items.png", "models.png"):
        assert f"]({name})" in text
        assert (attacked.out / name).stat().st_size > 10_000
