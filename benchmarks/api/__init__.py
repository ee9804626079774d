"""Throughput of a Kubernetes API server, restow or any other, under load of other processes."""
