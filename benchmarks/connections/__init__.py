"""Cost of connections: idle watches and new connections: `benchmarks.connections`."""
