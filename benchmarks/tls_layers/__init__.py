"""The own TLS layer beside the event loop's, in one run: `python -m benchmarks.tls_layers`."""
