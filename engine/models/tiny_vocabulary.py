"""The words that the built-in model reads: every attribute, its values, the words for each value.

A prompt that leaves an attribute out lets the seed choose it, and so does a word that is not
listed here.
"""

from types import MappingProxyType
from typing import Final

# Each value maps to its words; the first is the one to show to people.
PRODUCTS: Final = MappingProxyType(
    {
        "sneaker": ("sneaker", "running shoe", "trainer"),
        "car": ("car", "compact car", "hatchback"),
        "bottle": ("bottle", "water bottle", "drink bottle"),
        "mug": ("mug", "coffee mug", "cup"),
        "headphones": ("headphones", "pair of headphones", "over-ear headphones"),
        "handbag": ("handbag", "bag", "purse"),
    }
)
COLOURS: Final = MappingProxyType(
    {
        "red": ("red", "bright red"),
        "orange": ("orange", "bright orange"),
        "yellow": ("yellow", "lemon yellow"),
        "green": ("green", "emerald green"),
        "blue": ("blue", "royal blue"),
        "purple": ("purple", "violet"),
        "white": ("white", "pure white"),
        "black": ("black", "jet black"),
    }
)
BACKDROPS: Final = MappingProxyType(
    {
        "studio": ("studio", "loft studio", "photo studio"),
        "beach": ("beach", "sandy beach", "seaside"),
        "desert": ("desert", "sand dunes", "dunes"),
        "forest": ("forest", "woodland", "pine forest"),
        "street": ("city street", "street", "downtown street"),
        "mountains": ("mountains", "mountain meadow", "alpine meadow"),
        "snow": ("snow", "snowy field", "winter landscape"),
    }
)
TIMES: Final = MappingProxyType(
    {
        "morning": ("morning", "early morning", "dawn"),
        "noon": ("noon", "midday", "daytime"),
        "sunset": ("sunset", "golden hour", "dusk"),
        "night": ("night", "nighttime", "midnight"),
    }
)
GEOGRAPHIES: Final = MappingProxyType(
    {
        "san francisco": ("san francisco", "golden gate bridge", "california"),
        "new york": ("new york", "new york city", "manhattan"),
        "paris": ("paris", "eiffel tower", "france"),
        "london": ("london", "big ben", "england"),
        "tokyo": ("tokyo", "pagoda", "japan"),
        "cairo": ("cairo", "pyramids", "egypt"),
        "sydney": ("sydney", "sydney opera house", "australia"),
        "rio de janeiro": ("rio de janeiro", "rio", "brazil"),
    }
)
AUDIENCES: Final = MappingProxyType(
    {
        "runners": ("young runners", "runners", "athletes"),
        "families": ("families", "parents", "young families"),
        "gamers": ("gamers", "esports fans", "streamers"),
        "professionals": ("professionals", "executives", "business travellers"),
        "nature lovers": ("nature lovers", "gardeners", "hikers"),
    }
)
MOTIONS: Final = MappingProxyType(
    {
        "still": ("static camera", "locked-off shot", "still shot"),
        "pan left": ("camera pans left", "pan to the left", "slow pan left"),
        "pan right": ("camera pans right", "pan to the right", "slow pan right"),
        "push in": ("camera pushes in", "slow zoom in", "dolly in"),
        "pull back": ("camera pulls back", "slow zoom out", "dolly out"),
        "jump": ("product jumps", "it jumps up and lands", "product hops"),
        "float": ("product floats up", "it rises into the air", "product hovers upwards"),
    }
)

ATTRIBUTES: Final = MappingProxyType(
    {
        "product": PRODUCTS,
        "colour": COLOURS,
        "backdrop": BACKDROPS,
        "time": TIMES,
        "geography": GEOGRAPHIES,
        "audience": AUDIENCES,
        "motion": MOTIONS,
    }
)
