"""The report's charts in SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

BASELINE = "plain loop"
Cells = Mapping[str, Any]


def bars(rows: Sequence[Mapping[str, Any]]) -> str:
    """Seconds per variant, one bar for each way."""
    shown = [row for row in rows if "seconds" in row]
    longest = max((row["seconds"] for row in shown), default=1.0)
    parts = []
    for at, row in enumerate(shown):
        y, width = 24 + 22 * at, 360 * row["seconds"] / longest
        colour = "#2b6cb0" if row["name"].startswith("Adloom") else "#a0aec0"
        ratio = f" · {row['ratio']:.1f}x" if "ratio" in row else ""
        parts.append(
            f'<text x="300" y="{y + 12}" text-anchor="end">{_escape(row["name"])}</text>'
            f'<rect x="308" y="{y}" width="{width:.1f}" height="16" fill="{colour}"/>'
            f'<text x="{314 + width:.1f}" y="{y + 12}">{row["seconds"]:.2f} s{ratio}</text>'
        )
    return _svg(800, 32 + 22 * len(shown), parts)


def curves(cells: Cells, sides: Sequence[str]) -> str:
    """Seconds per variant over the number of siblings, of the sides timed at several sizes."""
    families = [name for name in speed_families(cells) if name.startswith("three-")]
    across = {name: 70 + 500 / max(1, len(families) - 1) * at for at, name in enumerate(families)}
    found = {
        name: {
            f: cells[key]["seconds"]
            for f in families
            if _is_timed(cells, key := f"speed|{name}|{f}")
        }
        for name in sides
    }
    drawn = {name: seconds for name, seconds in found.items() if len(seconds) > 1}
    top = 1.1 * max((max(seconds.values()) for seconds in drawn.values()), default=1.0)
    parts = [
        '<text x="70" y="24" font-weight="bold">Seconds per variant by the size of the family'
        "</text>",
        '<text x="320" y="350" text-anchor="middle">siblings in one family</text>',
        *(
            f'<text x="{x:.0f}" y="330" text-anchor="middle">{name.split("-")[1]}</text>'
            for name, x in across.items()
        ),
    ]
    for tick in (top * share for share in (0, 0.25, 0.5, 0.75, 1)):
        y = _height(tick, top)
        parts.append(
            f'<line x1="70" y1="{y:.1f}" x2="570" y2="{y:.1f}" stroke="#e2e8f0"/>'
            f'<text x="62" y="{y + 4:.1f}" text-anchor="end">{tick:.2f}</text>'
        )
    colours = iter(("#718096", "#dd6b20", "#38a169", "#2b6cb0", "#805ad5", "#d53f8c", "#000000"))
    label_y = 0.0
    for name, seconds in sorted(drawn.items(), key=lambda item: -list(item[1].values())[-1]):
        colour = next(colours)
        points = [(across[family], _height(value, top)) for family, value in seconds.items()]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        # The slowest comes first, at the top; labels keep a line's distance.
        label_y = max(points[-1][1] + 4, label_y + 16)
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
            f'<text x="{points[-1][0] + 8:.1f}" y="{label_y:.1f}" fill="{colour}">'
            f"{_escape(name)}</text>"
        )
    return _svg(800, 365, parts)


def _is_timed(cells: Cells, key: str) -> bool:
    return "seconds" in cells.get(key, {})


def _height(seconds: float, top: float) -> float:
    return 310 - 270 * seconds / top


def _svg(width: int, height: int, parts: Sequence[str]) -> str:
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
        f' font-family="sans-serif" font-size="12">\n<rect width="100%" height="100%"'
        f' fill="white"/>\n{body}\n</svg>\n'
    )


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")


def speed_families(cells: Cells) -> list[str]:
    """Keys of the families that were timed, by what varies and by size."""
    names = {key.split("|")[2] for key in cells if key.startswith("speed|")}
    return sorted(names, key=lambda name: (name.split("-")[0], int(name.split("-")[1])))
