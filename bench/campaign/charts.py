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
    """Seconds per variant over the number of siblings; the full height is the plain loop."""
    families = [name for name in speed_families(cells) if name.startswith("three-")]
    width = 520 / max(1, len(families) - 1)
    parts = [
        f'<text x="{60 + width * at:.0f}" y="330" text-anchor="middle">{name.split("-")[1]}</text>'
        for at, name in enumerate(families)
    ]
    loops = [cells[f"speed|{BASELINE}|{f}"] for f in families if f"speed|{BASELINE}|{f}" in cells]
    top = max((each["seconds"] for each in loops), default=1.0)
    colours = iter(("#718096", "#dd6b20", "#38a169", "#2b6cb0", "#805ad5", "#d53f8c", "#000000"))
    for name in sides:
        points = [
            (60 + width * at, 310 - 280 * cells[f"speed|{name}|{f}"]["seconds"] / top)
            for at, f in enumerate(families)
            if "seconds" in cells.get(f"speed|{name}|{f}", {})
        ]
        if len(points) > 1:
            colour = next(colours)
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            parts.append(
                f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
                f'<text x="{points[-1][0] + 8:.1f}" y="{points[-1][1] + 4:.1f}" fill="{colour}">'
                f"{_escape(name)}</text>"
            )
    return _svg(800, 345, parts)


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
