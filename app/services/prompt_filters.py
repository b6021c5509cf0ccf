"""What the filters of a prompt template do to a value."""

from __future__ import annotations

from jinja2 import nodes

from app.services.landmarks import landmark_phrase


def apply_filter(step: nodes.Filter, value: str) -> str:
    """Jinja's filters of these names, except that `truncate` counts its ellipsis in.

    `landmark` is our own: what a place is known by.
    """
    match step.name:
        case "lower":
            return value.lower()
        case "upper":
            return value.upper()
        case "title":
            return " ".join(word[:1].upper() + word[1:].lower() for word in value.split(" "))
        case "capitalize":
            return value.capitalize()
        case "landmark":
            return landmark_phrase(value)
        case "trim":
            return value.strip()
        case "default":
            return value if value.strip() else str(_argument(step))
        case _:
            return _truncate(value, int(_argument(step)))


def _argument(step: nodes.Filter) -> str | int:
    constant = step.args[0]
    assert isinstance(constant, nodes.Const)
    value: str | int = constant.value
    return value


def _truncate(value: str, length: int) -> str:
    """At most `length` characters, cut between words where there are several."""
    if len(value) <= length:
        return value
    cut = value[: length - 1]
    return (cut.rsplit(" ", 1)[0].rstrip() or cut) + "…"
