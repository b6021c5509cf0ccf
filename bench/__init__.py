"""Benchmarks: each a ratio against a named baseline in the same run, with quality beside speed."""

# Benchmarks import diffusers first; the engine keeps its advice off the terminal.
import engine as engine
