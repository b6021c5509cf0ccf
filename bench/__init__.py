"""Benchmarks: each a ratio against a named baseline in the same run, with quality beside speed."""
