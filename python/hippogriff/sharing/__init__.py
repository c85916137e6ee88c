"""The commands about sharing GPUs: run, ps, top, metrics."""
