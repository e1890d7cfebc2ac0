"""An audit for people: a contact sheet, and one page with verdicts, tables and the sheet."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from cfcl import page
from cfcl.audit import findings
from cfcl.audit.auditing import Pictures
from cfcl.audit.findings import Audit
from cfcl.data import saving
from cfcl.page import tag
from cfcl.use import contact, output

FILES = ("audit.json", "audit.csv", "audit.png", "audit.html")
STYLE = ".sheet { max-width: 100%; border: 1px solid var(--line); background: #fff; }"
HOW = (
    "The attacker is a neighbour: it knows the encoder, as every device does, and has public images. For each layer it "
    "trains an inverter, which learns to turn what the layer makes of public images back into these, and applies it to "
    "what the layer makes of images of other devices, which the inverter never saw. Beside it stands what takes no "
    "skill: the public image whose values are nearest, and the mean public image."
)
COLUMNS = (
    "Bytes: of one item as it is pulled. Error: mean squared error of pixels as a share of the mean image's; 0 % is "
    "the image itself. SSIM: structural similarity, 1 is the image itself. Recognised: accuracy of a classifier that "
    "learned from real images only. Matched: made images that are nearer to their own original than to any other "
    "private image."
)
LIMITS = (
    "This is one attack by a small network: a better one may get more, and none gets less. It knows the final encoder "
    "and plain images, as reserves hold them; pulled activations are of altered views, which tell no more. What models "
    "that go to the server give away is not measured, except by the test for membership."
)


def write(out: Path, found: Audit, pictures: Pictures) -> None:
    """Put all files of an audit into the folder `out`."""
    sheet = contact.png(contact.sheet(_rows(pictures)))
    contents: Mapping[str, bytes] = {
        "audit.json": (found.as_json(indent=1) + "\n").encode(),
        "audit.csv": found.as_csv().encode(),
        "audit.png": sheet,
        "audit.html": render(found, sheet).encode(),
    }
    for name in FILES:
        output.write(out / name, contents[name])


def render(found: Audit, sheet: bytes) -> str:
    """The page as text."""
    title = f"Audit of {found.run}"
    sent = {"image": "images themselves", "nothing": "nothing"}.get(found.layer, f"values of {found.layer}")
    facts = (
        f"{found.dataset}, {found.method}: neighbours got {sent}. {found.num_private:,} private images, "
        f"{found.num_public:,} public ones, {found.steps:,} steps of each network."
    )
    head, rows = findings.table(found)
    return page.document(
        title,
        tag("h1", title),
        tag("p", facts, class_="lead"),
        tag("h2", "Verdict"),
        tag("ul", *(tag("li", sentence) for sentence in found.verdicts())),
        tag("h2", "Pictures"),
        tag(
            "p", "The first row has private images. Each other row shows what an attacker makes of one layer's values."
        ),
        page.picture(sheet, "png", "Originals and reconstructions", class_="sheet"),
        tag("h2", "Numbers"),
        tag("p", HOW),
        page.table(head, rows, stacked=True),
        tag("p", COLUMNS),
        tag("h2", "Limits"),
        tag("p", LIMITS),
        style=STYLE,
    )


def _rows(pictures: Pictures) -> list[contact.Row]:
    return [
        contact.Row(title, [contact.Cell(saving.picture(image)) for image in _pixels(images)])
        for title, images in pictures.rows
    ]


def _pixels(images: Tensor) -> Tensor:
    return images.clamp(0, 1).mul(255).round().byte()
