"""The GPU decoder at full size on synthetic weights: `python -m benchmarks.gpu --help`, docs/results/performance.md."""
