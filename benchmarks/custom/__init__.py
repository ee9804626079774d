"""Benchmarks of custom resources."""
