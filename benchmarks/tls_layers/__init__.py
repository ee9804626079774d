"""restow's TLS layer compared to the event loop's: `python -m benchmarks.tls_layers`."""
