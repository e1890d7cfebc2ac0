"""Maps in a browser: what a script injected into a copy of the page sees, at two widths. A few seconds each."""

import base64
import hashlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from integration import conftest
from integration.conftest import BROWSER, cfcl, dom, run_words

pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs Chromium, which is not installed")

STEPS = """
window.addEventListener("load", () => {
  const seen = {}, map = document.getElementById("map"), card = document.getElementById("card");
  const state = () => ({ ...document.body.dataset });
  const point = (kind, x, y, more) => map.dispatchEvent(
    new PointerEvent(kind, { clientX: x, clientY: y, pointerId: 1, bubbles: true, ...more }));
  const inside = () => map.getBoundingClientRect();
  const key = (name) => map.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true }));
  seen.start = state();
  seen.overflow = document.documentElement.scrollWidth > document.documentElement.clientWidth;
  const dots = map.getContext("2d").getImageData(0, 0, map.width, map.height).data;
  seen.coloured = dots.some((value, place) => place % 4 === 3 && value > 0);
  outer: for (let y = 10; y < inside().height; y += 4) for (let x = 10; x < inside().width; x += 4) {
    point("pointermove", inside().left + x, inside().top + y);
    if (!card.hidden) { seen.at = [x, y]; break outer; }
  }
  paint();
  seen.hover = { ...state(), name: card.querySelector("figcaption").firstChild.textContent, wide: card.offsetWidth };
  point("pointerleave", 0, 0);
  seen.away = card.hidden;
  const x = inside().left + seen.at[0], y = inside().top + seen.at[1];
  point("pointerdown", x, y); point("pointerup", x, y); paint();
  seen.tap = { ...state(), shown: !card.hidden };
  key("Escape"); paint();
  seen.escaped = card.hidden;
  map.dispatchEvent(new WheelEvent("wheel", { deltaY: -100, clientX: x, clientY: y, cancelable: true })); paint();
  seen.wheel = state();
  document.getElementById("in").click(); key("+"); paint();
  seen.closer = state();
  document.getElementById("out").click(); key("-"); paint();
  seen.farther = state();
  const before = [view.x, view.y];
  point("pointerdown", x, y); point("pointermove", x + 50, y + 20); point("pointerup", x + 50, y + 20); paint();
  seen.dragged = [before[0] - view.x, before[1] - view.y].map((moved) => moved * unit() * view.zoom);
  document.getElementById("all").click(); paint();
  const chip = document.querySelector(".chips button");
  chip.click(); paint(); seen.fewer = state(); seen.pressed = chip.getAttribute("aria-pressed");
  const pair = document.querySelector("#pairs li button");
  seen.pairs = document.querySelectorAll("#pairs li").length;
  seen.outliers = document.querySelectorAll("#outliers li").length;
  pair.click(); paint();
  seen.pair = { ...state(), images: pair.dataset.images, on: pair.className, text: pair.textContent };
  seen.middle = [0, 1].map((axis) => chosen.reduce((sum, number) => sum + onScreen(number)[axis], 0) / 2);
  seen.size = [width, height];
  document.querySelector("#outliers li button").click(); paint();
  seen.outlier = { ...state(), shown: !card.hidden };
  seen.error = document.body.dataset.error || null;
  seen.inner = innerWidth;
  (window.parent || window).document.body.dataset.seen = JSON.stringify(seen);
});
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A map of forty noisy pictures in two sub-folders and of one saved twice, as a user makes it."""
    root = tmp_path_factory.mktemp("map")
    assert cfcl(*run_words(root / "runs", "train.steps=10"), "--workers", "1").returncode == 0
    (run,) = (root / "runs").iterdir()
    generator = np.random.default_rng(0)
    for number in range(40):
        path = root / "photos" / ("<i>a&b<" if number % 2 else "c<") / f"script>{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(generator.integers(0, 256, (48, 64, 3), dtype=np.uint8)).save(path)
    (root / "photos" / "c<" / "copy.png").write_bytes(path.read_bytes())
    out = root / "map.html"
    result = cfcl("map", str(root / "photos"), "--encoder", str(run), "--out", str(out))
    assert result.returncode == 0, result.stderr
    return out


def _seen(page: Path, folder: Path, width: int) -> dict[str, Any]:
    """What the steps write into a copy of the page, in a frame of this width."""
    text = page.read_text()
    digest = base64.b64encode(hashlib.sha256(STEPS.encode()).digest()).decode()
    text = text.replace("script-src ", f"script-src 'sha256-{digest}' ", 1)
    text = text.replace("</body>", f"<script>{STEPS}</script></body>")
    return conftest.seen(text, folder, width)


@pytest.mark.parametrize("width", [1280, 400])
def test_the_map_is_drawn_moved_and_searched(page: Path, tmp_path: Path, width: int) -> None:
    seen = _seen(page, tmp_path, width)

    assert (seen["error"], seen["inner"]) == (None, width)
    assert seen["start"]["ready"] == "true"
    assert (seen["start"]["points"], seen["start"]["zoom"]) == ("41", "1.00")
    assert (seen["coloured"], seen["overflow"]) == (True, False)
    assert seen["hover"]["hovered"] != "-1"
    assert re.fullmatch(r"(<i>a&b|c)</(script>\d\d|copy)\.png", seen["hover"]["name"])
    assert seen["hover"]["wide"] > 150
    assert seen["away"]
    assert seen["tap"]["shown"]
    assert seen["tap"]["chosen"] == seen["hover"]["hovered"]
    assert seen["escaped"]
    # a wheel's step is e^(1/4), a button's and a key's 1.4
    assert seen["wheel"]["zoom"] == "1.28"
    assert (seen["closer"]["zoom"], seen["farther"]["zoom"]) == ("2.52", "1.28")
    assert seen["dragged"] == pytest.approx([50, 20])
    assert (seen["fewer"]["points"], seen["pressed"]) == ("21", "false")  # those in c, and the copy
    assert (seen["pairs"], seen["outliers"]) == (1, 5)
    first, second = seen["pair"]["images"].split()
    assert seen["pair"]["chosen"] == f"{first} {second}"
    assert seen["pair"]["on"] == "on"
    assert seen["pair"]["text"] == "0.000<i>a&b</script>39.pngc</copy.png"
    assert seen["middle"] == pytest.approx([side / 2 for side in seen["size"]])
    assert seen["outlier"]["shown"]
    assert float(seen["outlier"]["zoom"]) > 1


def test_nothing_else_runs_in_the_page(page: Path, tmp_path: Path) -> None:
    """A script that got into the page would be stopped by its policy."""
    (tmp_path / "copy.html").write_text(page.read_text().replace("</body>", f"<script>{STEPS}</script></body>"))
    found = dom(tmp_path / "copy.html")
    assert 'data-ready="true"' in found
    assert "data-seen" not in found
