"""What the cells say, as Markdown, JSON and two charts in SVG."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.campaign.charts import BASELINE, Cells, bars, curves, speed_families
from bench.campaign.choice import BOUND, is_close
from bench.campaign.measure import percentile
from bench.campaign.plain import GUARD_INCLUDED
from engine.registry import default_settings, get_model
from engine.units import decode_units

# What others are compared with.
NO_PEERS = (BASELINE, "plain batched")
# As much as two medians of a few variants may differ and be called equal.
EQUAL_DB = 0.5


def write_report(cells: Cells, *, header: Mapping[str, Any], folder: Path, images: Path) -> str:
    """Write campaign.md and campaign.json, and the charts into `images`; returns the Markdown."""
    folder.mkdir(parents=True, exist_ok=True)
    images.mkdir(parents=True, exist_ok=True)
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
            *_stage_table(cells, header),
            "",
            *_sweep_table(cells, header["sides"]),
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
    (images / "campaign-speed.svg").write_text(bars(rows), encoding="utf-8")
    (images / "campaign-sizes.svg").write_text(curves(cells, header["sides"]), encoding="utf-8")
    return text


def _row(name: str, cells: Cells, main: str) -> dict[str, Any]:
    speed = cells.get(f"speed|{name}|{main}")
    baseline = cells.get(f"speed|{BASELINE}|{main}")
    quality = _variants(cells, name)
    row: dict[str, Any] = {"name": name}
    if speed and "seconds" in speed:
        row |= {
            "seconds": speed["seconds"],
            "forwards": speed["forwards"],
            "gflop": _gflop(speed["forwards"]),
            "peak_mb": speed["peak_mb"],
        }
        guarded = cells.get(f"speed|{name}{GUARD_INCLUDED}|{main}")
        if guarded:
            row["guarded_seconds"] = guarded["seconds"]
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
        "| way | s per variant | with the guard's renders | ratio | forwards | GFLOP | peak MB |"
        " PSNR p50 / p5 | SSIM p50 / p5 | right (exact) | drift p50 / p95 |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        if len(row) == 1 or row["name"].endswith(GUARD_INCLUDED):
            continue
        lines.append(
            f"| {row['name']} | {_number(row, 'seconds', 3)} |"
            f" {_number(row, 'guarded_seconds', 3)} | {_number(row, 'ratio', 2)}x |"
            f" {_number(row, 'forwards', 1)} | {_number(row, 'gflop', 0)} |"
            f" {_number(row, 'peak_mb', 0)} |"
            f" {_number(row, 'psnr_p50', 1)} / {_number(row, 'psnr_p5', 1)} |"
            f" {_number(row, 'ssim_p50', 3)} / {_number(row, 'ssim_p5', 3)} |"
            f" {_percent(row, 'right')} ({_percent(row, 'right_exact')}) |"
            f" {_number(row, 'drift_p50', 2)} / {_number(row, 'drift_p95', 2)} |"
        )
    return lines


def _best_peers(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Ratios of each profile to plain diffusers and to the best peers."""
    by_name = {row["name"]: row for row in rows if "seconds" in row}
    peers = [
        row
        for name, row in by_name.items()
        if name not in NO_PEERS and not name.startswith("Adloom") and "psnr_p50" in row
    ]
    lines = [
        f"A peer keeps the promise of `faithful` when its median variant has {BOUND.min_psnr_db:g}"
        f" dB or an SSIM of {BOUND.min_ssim:g} to its exact render. A peer is as close as a profile"
        f" when its median is, to {EQUAL_DB:g} dB. The fastest of each kind is the best.",
        "",
        "| profile | to the plain loop | to plain batched | to the best peer that keeps the promise"
        " | to the best peer that is as close |",
        "|---|---|---|---|---|",
    ]
    promising = _fastest(filter(is_close, peers))
    for name, row in by_name.items():
        if name.startswith("Adloom"):
            quality = by_name.get(name.removesuffix(GUARD_INCLUDED), row)
            as_close = _fastest(
                peer for peer in peers if peer["psnr_p50"] >= quality.get("psnr_p50", 0) - EQUAL_DB
            )
            ratios = (
                *(_ratio(by_name.get(other), row) for other in NO_PEERS),
                *(_ratio(peer, row, told=True) for peer in (promising, as_close)),
            )
            lines.append(f"| {name} | {' | '.join(ratios)} |")
    return lines


def _fastest(rows: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    return min(rows, key=lambda row: float(row["seconds"]), default=None)


def _ratio(other: Mapping[str, Any] | None, row: Mapping[str, Any], *, told: bool = False) -> str:
    if other is None:
        return "–"
    ratio = f"{other['seconds'] / row['seconds']:.2f}x"
    return f"{ratio} ({other['name']}, {other['psnr_p50']:.1f} dB)" if told else ratio


def _stage_table(cells: Cells, header: Mapping[str, Any]) -> list[str]:
    """Where the time goes (wall seconds per variant), and what a faster denoising can still win."""
    names = ("text", "denoise", "decode", "overhead", "encode")
    lines = [
        "## Where the time goes",
        "",
        "Wall seconds per variant in the last run of the main cell; encoding to MP4 comes on top of"
        " the seconds above. Limit: how much faster the rest alone would be, were denoising free.",
        "",
        f"| way | {' | '.join(names)} | limit |",
        f"|---|{'---|' * (len(names) + 1)}",
    ]
    for name in header["sides"]:
        stages = cells.get(f"speed|{name}|{header['main']}", {}).get("stages")
        if stages:
            whole = sum(stages[stage] for stage in names)
            values = " | ".join(
                f"{stages[stage]:.3f} ({stages[stage] / whole:.0%})" for stage in names
            )
            lines.append(f"| {name} | {values} | {whole / (whole - stages['denoise']):.1f}x |")
    return lines


def _sweep_table(cells: Cells, sides: Sequence[str]) -> list[str]:
    """All settings that were tried; those in bold were measured in full."""
    lines = [
        "## Settings of the peers that were tried",
        "",
        "| way | s per variant | forwards | PSNR p50 | SSIM p50 |",
        "|---|---|---|---|---|",
    ]
    for key, cell in cells.items():
        kind, name, _ = key.split("|")
        if kind == "sweep" and "seconds" in cell:
            shown = f"**{name}**" if name in sides else name
            lines.append(
                f"| {shown} | {_number(cell, 'seconds', 3)} | {_number(cell, 'forwards', 1)} |"
                f" {_number(cell, 'psnr_p50', 1)} | {_number(cell, 'ssim_p50', 3)} |"
            )
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
    families = speed_families(cells)
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


def _number(row: Mapping[str, Any], name: str, digits: int) -> str:
    value = row.get(name)
    return "–" if value is None else f"{value:.{digits}f}"


def _percent(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    return "–" if value is None else f"{value:.0%}"
