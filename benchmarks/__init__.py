"""Side by side with peers, in one process: `python -m benchmarks`."""
