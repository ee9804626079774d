"""Benchmarks of encryption at rest."""
