"""What connections cost: idle watches, and those that are opened anew: `benchmarks.connections`."""
