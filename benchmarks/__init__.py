"""Benchmarks of restow. They print ratios measured in one run; no test depends on them."""
