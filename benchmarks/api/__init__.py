"""How fast a Kubernetes API server is, ours or any other, driven from other processes."""
