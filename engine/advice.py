"""Keeps off the terminal what libraries advise and nobody here can use."""

from __future__ import annotations

import logging

# Importing diffusers' pipelines asks transformers for image processors, which it has in two kinds:
# by torchvision, and by Pillow where that is not installed. The engine reads no picture with either
# of them, so that one kind stands in for the other is no news.
_LOGGER = "transformers.utils.import_utils"
_ADVICE = "ImageProcessor` requires torchvision"


def withhold_torchvision_advice() -> None:
    """Say nothing about torchvision from now on; whatever else transformers warns of is said."""
    logging.getLogger(_LOGGER).addFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    return _ADVICE not in record.getMessage()
