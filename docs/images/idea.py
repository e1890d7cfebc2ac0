"""Draws `idea.svg`, beside this file: what devices, their neighbours and the server send each other."""

import math
from pathlib import Path

WIDTH, HEIGHT = 880, 330
INK, SOFT, BLUE, ORANGE = "#1f2328", "#57606a", "#0a4f9c", "#a63c00"
CENTRES = {number: (190 + 120 * math.cos(angle), 178 + 92 * math.sin(angle)) for number, angle in
           ((number, -math.pi / 2 + 2 * math.pi * number / 6) for number in range(6))}  # fmt: skip
EDGES = ((0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0), (1, 4))
DIGITS = ("1 7", "0 4", "2 3", "5 8", "6 9", "3 7")
"""The kinds of images that a device has."""


def text(x: float, y: float, words: str, *, size: int = 14, colour: str = INK, weight: int = 400) -> str:
    """Words around a place."""
    look = f'font-size="{size}" font-weight="{weight}" fill="{colour}" text-anchor="middle"'
    return f'<text x="{x:.0f}" y="{y:.0f}" {look}>{words}</text>'


def arrow(start: tuple[float, float], end: tuple[float, float], colour: str, dash: str = "") -> str:
    """A line with a head at its end."""
    (x, y), (to_x, to_y) = start, end
    head = "blue" if colour == BLUE else "orange" if colour == ORANGE else "soft"
    return (
        f'<line x1="{x:.0f}" y1="{y:.0f}" x2="{to_x:.0f}" y2="{to_y:.0f}" stroke="{colour}" stroke-width="2.2"'
        f' stroke-dasharray="{dash or "none"}" marker-end="url(#{head})"/>'
    )


def graph() -> list[str]:
    """The devices of the left half, and who may talk to whom."""
    lines = [
        f'<line x1="{CENTRES[a][0]:.0f}" y1="{CENTRES[a][1]:.0f}" x2="{CENTRES[b][0]:.0f}" y2="{CENTRES[b][1]:.0f}"'
        ' stroke="#c3c9d0" stroke-width="2"/>'
        for a, b in EDGES
    ]
    dots = [
        f'<circle cx="{x:.0f}" cy="{y:.0f}" r="25" fill="#eaf2fb" stroke="{BLUE}" stroke-width="2"/>'
        + text(x, y + 5, DIGITS[number])
        for number, (x, y) in CENTRES.items()
    ]
    return [
        text(190, 34, "Devices, each with images of a few kinds", weight=600),
        *lines,
        *dots,
        text(190, 318, "neighbours on a graph; no labels anywhere", size=13, colour=SOFT),
    ]


def device(x: float, title: str, words: str) -> list[str]:
    """One of the two devices of the right half."""
    look = f'rx="12" fill="#eaf2fb" stroke="{BLUE}" stroke-width="2"'
    box = f'<rect x="{x - 70:.0f}" y="150" width="140" height="66" {look}/>'
    return [box, text(x, 178, title, weight=600), text(x, 199, words, size=13, colour=SOFT)]


def exchange() -> list[str]:
    """What one link carries, and what goes to the server."""
    left, right = 462, 798
    server = f'<rect x="540" y="52" width="180" height="40" rx="12" fill="#f4f5f7" stroke="{SOFT}" stroke-width="2"/>'
    return [
        text(630, 34, "On every link, again and again", weight=600),
        server,
        text(630, 77, "server: averages models", size=13),
        arrow((480, 148), (543, 94), SOFT, "5 4"),
        arrow((780, 148), (717, 94), SOFT, "5 4"),
        text(470, 118, "model", size=13, colour=SOFT),
        text(790, 118, "model", size=13, colour=SOFT),
        *device(left, "receiver", "trains on both"),
        *device(right, "neighbour", "chooses by a rule"),
        arrow((535, 172), (725, 172), BLUE),
        text(630, 164, "push: this is what I have", size=13, colour=BLUE),
        arrow((725, 198), (535, 198), ORANGE),
        text(630, 218, "pull: a few items that help", size=13, colour=ORANGE),
        text(630, 270, "An item is an image (explicit mode), activations, or an embedding", size=13, colour=SOFT),
        text(630, 290, "(implicit mode, in which no message can hold an image).", size=13, colour=SOFT),
    ]


def drawing() -> str:
    """The whole picture, on a light card that stands out from a dark page."""
    heads = "".join(
        f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0L8 4L0 8z" fill="{colour}"/></marker>'
        for name, colour in (("blue", BLUE), ("orange", ORANGE), ("soft", SOFT))
    )
    card = f'<rect width="{WIDTH}" height="{HEIGHT}" rx="14" fill="#ffffff" stroke="#d5d8dc"/>'
    parts = [f"<defs>{heads}</defs>", card, *graph(), *exchange()]
    start = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    return f'{start} font-family="system-ui, sans-serif">\n' + "\n".join(parts) + "\n</svg>\n"


if __name__ == "__main__":
    (Path(__file__).parent / "idea.svg").write_text(drawing(), encoding="utf-8")
