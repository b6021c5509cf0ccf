"""`python -m bench`: run the benchmarks and print their tables."""

from __future__ import annotations

import argparse

from bench import overhead, uploads


def main() -> None:
    """Parse the options and print one Markdown table per benchmark."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=main.__doc__)
    parser.add_argument("--variants", type=int, default=4, help="variants in one run (default 4)")
    parser.add_argument("--runs", type=int, default=3, help="runs of each side (default 3)")
    options = parser.parse_args()
    if options.variants < 1 or options.runs < 1:
        parser.error("--variants and --runs must be 1 or more")
    print(overhead.measure(variants=options.variants, runs=options.runs))
    print()
    print(uploads.measure())


if __name__ == "__main__":
    main()
