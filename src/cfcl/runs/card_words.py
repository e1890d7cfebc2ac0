"""The sentences of a card: how an encoder is used, what left devices, and what nobody has tested."""

from collections.abc import Collection

from cfcl.config import AugmentConfig, Config
from cfcl.runs import faults

OFF = AugmentConfig().model_dump()
"""What augmentation is off at."""

WHAT = (
    "An encoder: it turns an image into a vector of numbers, so that images which look alike are near each other. It "
    "was learned without labels, by devices that average their models in a simulation of federated learning."
)
USE = """In the folder of the run:

```python
import cfcl
encoder = cfcl.load_encoder("encoder.safetensors")
vectors = encoder.embed(["one.png", "two.png"])
```"""
PROBE = (
    "Accuracy of a linear probe in percent on {split} images, by the number of labels per class that it gets; "
    "`neighbours` is that of the nearest neighbours with all labels. After ± is half of the 95 % interval over images, "
    "where their number was recorded."
)
YARDSTICKS = "The same probe on what takes no training, ± half of the 95 % interval over images and draws of labels."

LEFT = {
    "datapoint": "**Raw datapoints** went to neighbours, as they are. Whoever holds a neighbouring device can look at "
    "them.",
    "activation": "**Activations** of a layer of the network went to neighbours, for two altered views of a datapoint. "
    "No datapoint did, but something of it may be seen in its activations, more in those of early layers.",
    "embedding": "**Embeddings** went to neighbours, and no datapoint did. Something of a datapoint may be guessed "
    "from its embedding.",
    "model": "**Models** went to the server, which averages them. Something of the data may be guessed from a model.",
}
HOSTILE = "- Some devices were hostile on purpose ({hostile}). What it has learned of them is not known."
SPLIT_BY_LABEL = ("labels", "overlapping", "common", "skewed", "dirichlet")


def privacy(config: Config, kinds: Collection[str]) -> list[str]:
    """What left devices, by what was counted on links."""
    found = [f"- {text}" for kind, text in LEFT.items() if kind in kinds]
    if config.exchange.method == "centralised":
        found.insert(
            0, "- **All data** are on one device in this run, so it shows what is lost or won without privacy."
        )
    if not {"datapoint", "activation", "embedding"} & set(kinds):
        found.append("- Nothing of a single datapoint went to another device.")
    if config.privacy.noise > 0 and {"activation", "embedding"} & set(kinds):
        found.append("- Embeddings and activations had Gaussian noise. Nothing was encrypted or hidden in a sum.")
    else:
        found.append("- Nothing was encrypted, blurred by noise or hidden in a sum.")
    found.append("- How much can be guessed was not tested here; `cfcl audit RUN` does.")
    return ["What left devices:", "\n".join(found)]


def unknown(config: Config, *, labelled: bool) -> list[str]:
    """What nobody has tested, and what labels were used for."""
    uses = []
    if config.partition.kind in SPLIT_BY_LABEL:
        uses.append("the split among devices")
    if labelled:
        uses.append("the evaluation")
    if config.exchange.method == "oracle":
        uses.append("the choice of items that are exchanged (this method is a yardstick)")
    told = f"Labels were used for {' and for '.join(uses)} only" if uses else "Labels were not used"
    judged = "validation" if config.data.validation > 0 else "test"
    hostile = faults.hostile(config)
    return [
        "\n".join(
            [
                *([HOSTILE.format(hostile=hostile)] if hostile else []),
                f"- {told}; no loss saw any.",
                f"- It was judged on the {judged} images of the same data, and tested on no others.",
                "- Robustness was not tested: other cameras, noise, damage, images made to mislead it.",
                "- Fairness was not tested: it may serve some people or things worse than others.",
                "- Devices, links and their delays are simulated. One seed says nothing of the spread over seeds.",
            ]
        )
    ]


def licence(data: str | None) -> str:
    """Under which terms the encoder may be used, as far as we can say."""
    source = f"the data are under: {data}" if data else "the licence of the data is unknown: they are your own"
    return f"cfcl is under Apache-2.0. It sets no terms for this encoder; {source}. Choose yours within them."
