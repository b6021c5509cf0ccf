"""What the cells say, as Markdown, JSON and two charts in SVG."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.campaign.measure import percentile
from engine.registry import default_settings, get_model
from engine.units import decode_units

# Peers are compared where the median variant is as close to its exact render as `faithful` is.
EQUAL_PSNR_DB = 30.0
_BASELINE = "plain loop"
Cells = Mapping[str, Any]


def write_report(cells: Cells, *, header: Mapping[str, Any], folder: Path) -> str:
    """Write campaign.md, campaign.json and the charts; returns the Markdown."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [_row(name, cells, header["main"]) for name in header["sides"]]
    text = "\n".join(
        [
            f"# One campaign of {header['main']} in every way",
            "",
            *(f"- {name}: {value}" for name, value in header["facts"].items()),
            "",
            *_main_table(rows),
            "",
            *_best_peers(rows),
            "",
            *_by_parameter(cells, header["sides"]),
            "",
            *_by_size(cells, header["sides"]),
            "",
            *_refusals(cells),
            "",
        ]
    )
    (folder / "campaign.md").write_text(text, encoding="utf-8")
    document = {"header": dict(header), "rows": rows, "cells": dict(cells)}
    (folder / "campaign.json").write_text(json.dumps(document, indent=1), encoding="utf-8")
    (folder / "campaign-speed.svg").write_text(_bars(rows), encoding="utf-8")
    (folder / "campaign-sizes.svg").write_text(_curves(cells, header["sides"]), encoding="utf-8")
    return text


def _row(name: str, cells: Cells, main: str) -> dict[str, Any]:
    speed = cells.get(f"speed|{name}|{main}")
    baseline = cells.get(f"speed|{_BASELINE}|{main}")
    quality = _variants(cells, name)
    row: dict[str, Any] = {"name": name}
    if speed and "seconds" in speed:
        row |= {
            "seconds": speed["seconds"],
            "forwards": speed["forwards"],
            "gflop": _gflop(speed["forwards"]),
            "peak_mb": speed["peak_mb"],
        }
        if baseline:
            row["ratio"] = baseline["seconds"] / speed["seconds"]
    return row | _summary(quality)


def _summary(variants: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    if not variants:
        return {}
    rights = [right for row in variants for right in row["right"].values()]
    exact = [right for row in variants for right in row["right_exact"].values()]
    drifts = [row["drift"] for row in variants if "drift" in row]
    return {
        "psnr_p50": percentile([row["psnr_db"] for row in variants], 50),
        "psnr_p5": percentile([row["psnr_db"] for row in variants], 5),
        "ssim_p50": percentile([row["ssim"] for row in variants], 50),
        "ssim_p5": percentile([row["ssim"] for row in variants], 5),
        "right": sum(rights) / len(rights),
        "right_exact": sum(exact) / len(exact),
        "drift_p50": percentile(drifts, 50),
        "drift_p95": percentile(drifts, 95),
        "variants": len(variants),
    }


def _variants(cells: Cells, name: str, varying: str | None = None) -> list[dict[str, Any]]:
    found = []
    for key, rows in cells.items():
        kind, side, family = key.split("|")
        is_asked = varying is None or family.startswith(f"{varying}-")
        if kind == "quality" and side == name and is_asked and isinstance(rows, list):
            found += rows
    return found


def _gflop(forwards: float) -> float:
    """Operations of one variant, from the architecture; a forward counts whole or not at all."""
    settings = default_settings("adloom-tiny")
    cost = get_model("adloom-tiny").cost
    tokens = cost.num_tokens(
        width=settings.width, height=settings.height, num_frames=settings.num_frames
    )
    return cost.forward_flops(tokens) * (forwards + decode_units(settings)) / 1e9


def _main_table(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    lines = [
        "| way | s per variant | ratio | forwards | GFLOP | peak MB | PSNR p50 / p5 |"
        " SSIM p50 / p5 | right (exact) | drift p50 / p95 |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        if len(row) == 1:
            continue
        lines.append(
            f"| {row['name']} | {_number(row, 'seconds', 3)} | {_number(row, 'ratio', 2)}x |"
            f" {_number(row, 'forwards', 1)} | {_number(row, 'gflop', 0)} |"
            f" {_number(row, 'peak_mb', 0)} |"
            f" {_number(row, 'psnr_p50', 1)} / {_number(row, 'psnr_p5', 1)} |"
            f" {_number(row, 'ssim_p50', 3)} / {_number(row, 'ssim_p5', 3)} |"
            f" {_percent(row, 'right')} ({_percent(row, 'right_exact')}) |"
            f" {_number(row, 'drift_p50', 2)} / {_number(row, 'drift_p95', 2)} |"
        )
    return lines


def _best_peers(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Ratios of each profile to the three baselines that we hold ourselves to."""
    by_name = {row["name"]: row for row in rows if "seconds" in row}
    peers = [
        row
        for name, row in by_name.items()
        if not name.startswith(("Adloom", "plain")) and row.get("psnr_p50", 0.0) >= EQUAL_PSNR_DB
    ]
    best = min(peers, key=lambda row: float(row["seconds"]), default=None)
    told = "none" if best is None else f"{best['name']} ({best['psnr_p50']:.1f} dB)"
    lines = [
        f"Best peer with a median of {EQUAL_PSNR_DB:g} dB or more: {told}.",
        "",
        "| profile | to the plain loop | to plain batched | to the best peer |",
        "|---|---|---|---|",
    ]
    against = [by_name.get(_BASELINE), by_name.get("plain batched"), best]
    for name, row in by_name.items():
        if name.startswith("Adloom"):
            ratios = (
                "–" if other is None else f"{other['seconds'] / row['seconds']:.2f}x"
                for other in against
            )
            lines.append(f"| {name} | {' | '.join(ratios)} |")
    return lines


def _by_parameter(cells: Cells, sides: Sequence[str]) -> list[str]:
    names = dict.fromkeys(
        key.split("|")[2].split("-")[0] for key in cells if key.startswith("quality|")
    )
    lines = []
    for varying in names:
        lines += [
            f"## Varying: {varying}",
            "",
            "| way | variants | PSNR p50 / p5 | SSIM p50 / p5 | right (exact) | drift p50 / p95 |",
            "|---|---|---|---|---|---|",
        ]
        for name in sides:
            row = _summary(_variants(cells, name, varying))
            if row:
                lines.append(
                    f"| {name} | {row['variants']} |"
                    f" {_number(row, 'psnr_p50', 1)} / {_number(row, 'psnr_p5', 1)} |"
                    f" {_number(row, 'ssim_p50', 3)} / {_number(row, 'ssim_p5', 3)} |"
                    f" {_percent(row, 'right')} ({_percent(row, 'right_exact')}) |"
                    f" {_number(row, 'drift_p50', 2)} / {_number(row, 'drift_p95', 2)} |"
                )
        lines.append("")
    return lines


def _by_size(cells: Cells, sides: Sequence[str]) -> list[str]:
    families = _speed_families(cells)
    lines = [
        "## Seconds per variant by the size of the family",
        "",
        f"| way | {' | '.join(families)} |",
        f"|---|{'---|' * len(families)}",
    ]
    for name in sides:
        found = [cells.get(f"speed|{name}|{family}", {}) for family in families]
        if any("seconds" in each for each in found):
            values = " | ".join(_number(each, "seconds", 3) for each in found)
            lines.append(f"| {name} | {values} |")
    return lines


def _speed_families(cells: Cells) -> list[str]:
    names = {key.split("|")[2] for key in cells if key.startswith("speed|")}
    return sorted(names, key=lambda name: (name.split("-")[0], int(name.split("-")[1])))


def _refusals(cells: Cells) -> list[str]:
    reasons = {
        key.split("|")[1]: cell["refused"]
        for key, cell in cells.items()
        if isinstance(cell, dict) and "refused" in cell
    }
    if not reasons:
        return []
    return [
        "## Ways that this model or these versions refuse",
        "",
        *(f"- {name}: {reason}" for name, reason in reasons.items()),
    ]


def _bars(rows: Sequence[Mapping[str, Any]]) -> str:
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


def _curves(cells: Cells, sides: Sequence[str]) -> str:
    """Seconds per variant over the number of siblings; the full height is the plain loop."""
    families = [name for name in _speed_families(cells) if name.startswith("three-")]
    width = 520 / max(1, len(families) - 1)
    parts = [
        f'<text x="{60 + width * at:.0f}" y="330" text-anchor="middle">{name.split("-")[1]}</text>'
        for at, name in enumerate(families)
    ]
    loops = [cells[f"speed|{_BASELINE}|{f}"] for f in families if f"speed|{_BASELINE}|{f}" in cells]
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


def _number(row: Mapping[str, Any], name: str, digits: int) -> str:
    value = row.get(name)
    return "–" if value is None else f"{value:.{digits}f}"


def _percent(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    return "–" if value is None else f"{value:.0%}"
