"""Effect of hostile connections on a well-behaved client: `python -m benchmarks.hostile`."""
