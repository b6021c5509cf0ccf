"""One file per model family; each drives unmodified diffusers pipelines behind `ModelRunner`."""
