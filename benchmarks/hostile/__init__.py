"""What hostile connections do to a client that behaves: `python -m benchmarks.hostile`."""
