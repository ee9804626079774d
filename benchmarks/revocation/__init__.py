"""Cost of checking running requests again: `benchmarks.revocation`."""
