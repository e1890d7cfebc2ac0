"""What people call the panels of the registered study."""

PANELS = {
    "usps-common": "USPS: 80 % of every device's data are of one common kind",
    "usps": "USPS: three kinds per device",
    "usps-common-dial": "USPS, 80 % of one common kind: ten activations or embeddings per link",
    "usps-dial": "USPS, three kinds per device: ten activations or embeddings per link",
    "usps-common-control": "USPS, 80 % of one common kind: choice by another device's reserve",
    "usps-control": "USPS, three kinds per device: choice by another device's reserve",
    "usps-common-spread": "USPS, 80 % of one common kind: CF-CL's temperature in units of the spread",
    "usps-common-disjoint": "USPS, 80 % of one common kind: every image on one device only",
    "usps-skewed": "USPS: 90 % of a device's data are of one kind, not the same everywhere",
    "usps-dirichlet": "USPS: Dirichlet shares of all kinds (0.1)",
    "usps-ring": "USPS, 80 % of one common kind: devices on a ring",
    "digits-common": "Digits: 80 % of every device's data are of one common kind",
    "digits": "Digits: three kinds per device",
    "fashion-mnist": "Fashion-MNIST: three kinds per device",
    "svhn": "SVHN: three kinds per device",
    "usps-study": "USPS, small networks and triplets: three kinds per device",
    "usps-paper": "USPS, settings as the paper prints them: three kinds per device",
}
"""By name; other profiles use some of these names for other settings."""


def of(panel: str) -> str:
    """What a panel is, or its name where nobody calls it anything else."""
    return PANELS.get(panel, panel)
