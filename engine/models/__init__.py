"""The models' data: one file per family, one row per model; no torch."""
