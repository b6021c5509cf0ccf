"""What it costs to check a table on its way in, beside a plain pass of the standard CSV reader."""

from __future__ import annotations

import csv
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from openpyxl import Workbook

from app.services.table_columns import suggest_columns
from app.services.table_files import TableFiles
from app.services.table_pass import Needs, TablePass

HEADER: Final = ("row_id", "geography", "audience", "backdrop", "notes")
NAMES: Final = HEADER[1:4]
ROWS: Final = {"csv": (5_000, 100_000), "xlsx": (5_000, 100_000)}


def measure() -> str:
    """Check tables of several sizes, each in a process of its own; a Markdown table."""
    lines = [
        f"{platform.machine()}, Python {platform.python_version()}; CPU seconds and peak memory of"
        " a process that does nothing else",
        "",
        "| table | rows | plain csv.reader, s | checked, mended, mapped, s | ratio | peak, MB |",
        "|---|---|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory(prefix="adloom-bench-") as folder:
        for kind, sizes in ROWS.items():
            for rows in sizes:
                path = Path(folder) / f"{rows}.{kind}"
                _write(path, rows)
                done = subprocess.run(
                    [sys.executable, "-m", "bench.uploads", str(path)],
                    check=True,
                    capture_output=True,
                    text=True,
                )
                plain, checked, peak = map(float, done.stdout.split())
                shown = f"{plain:.2f} | {checked:.2f} | {checked / plain:.1f}"
                if kind == "xlsx":
                    shown = f"– | {checked:.2f} | –"
                lines.append(f"| {kind.upper()} | {rows:,} | {shown} | {peak:.0f} |")
    return "\n".join(lines)


def measure_one(path: Path) -> tuple[float, float, float]:
    """CPU seconds of a plain pass and of the check, and the process's peak memory in MB."""
    start = time.process_time()
    if path.suffix == ".csv":
        with path.open(newline="", encoding="utf-8") as text:
            for _ in csv.reader(text):
                pass
    plain = time.process_time() - start
    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder, path.open("rb") as file:
        with TableFiles(Path(folder)) as files:
            reading = TablePass(file, Needs(names=NAMES, max_rows=max(ROWS["csv"])), files=files)
            for _ in reading.steps():
                pass
        if reading.result is None or reading.result.is_open:
            raise RuntimeError("the table of the benchmark could not be used")
        suggest_columns(reading.result.header, NAMES)
    return plain, time.process_time() - start, _peak_mb()


def _peak_mb() -> float:
    """The most memory that this process held; a parent's share, which ru_maxrss has, is out."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def _rows(count: int) -> Iterator[tuple[str, ...]]:
    for number in range(count):
        yield (
            f"r{number}",
            f"city {number % 997}",
            f"young, group {number % 31}",
            f"place {number}",
            f"flight {number}",
        )


def _write(path: Path, rows: int) -> None:
    if path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8") as text:
            csv.writer(text).writerows([HEADER, *_rows(rows)])
        return
    book = Workbook(write_only=True)
    sheet = book.create_sheet("Variants")
    sheet.append(HEADER)
    for row in _rows(rows):
        sheet.append(row)
    book.save(path)


if __name__ == "__main__":
    print(*measure_one(Path(sys.argv[1]))) if sys.argv[1:] else print(measure())
