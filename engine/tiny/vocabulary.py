"""What the built-in model can show: the words it reads, what they look like, and its sizes.

The module imports neither torch nor numpy, so an example or a test can list the values.
"""

from types import MappingProxyType
from typing import Final

from engine.models.tiny_vocabulary import ATTRIBUTES as ATTRIBUTES
from engine.models.tiny_vocabulary import AUDIENCES as AUDIENCES
from engine.models.tiny_vocabulary import BACKDROPS as BACKDROPS
from engine.models.tiny_vocabulary import COLOURS as COLOURS
from engine.models.tiny_vocabulary import GEOGRAPHIES as GEOGRAPHIES
from engine.models.tiny_vocabulary import MOTIONS as MOTIONS
from engine.models.tiny_vocabulary import PRODUCTS as PRODUCTS
from engine.models.tiny_vocabulary import TIMES as TIMES

AUDIENCE_SIGNS: Final = MappingProxyType(
    {
        "runners": "the product stands on a running track",
        "families": "three balloons float beside the product",
        "gamers": "a neon ring glows behind the product",
        "professionals": "the product stands on a black podium with a gold edge",
        "nature lovers": "green leaves frame the product",
    }
)

# Height and width in pixels of the four aspect buckets the model is trained on.
SIZES: Final = MappingProxyType(
    {"16:9": (128, 224), "9:16": (224, 128), "1:1": (160, 160), "4:5": (160, 128)}
)
NUM_FRAMES: Final = 17
FPS: Final = 12


def values(attribute: str) -> tuple[str, ...]:
    """Return the canonical values of one attribute, in their fixed order."""
    return tuple(ATTRIBUTES[attribute])
