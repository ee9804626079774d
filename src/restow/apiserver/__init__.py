"""One API server process: the composition root of storage, resources and HTTP serving.

    from restow.apiserver import ServeOptions, declare_kind, serve
    from restow.apiserver import AggregatedOptions, load_kinds, serve_aggregated

Not here: anything that a test or another program needs without a whole server.
"""

from restow.apiserver.aggregated_options import AggregatedOptions
from restow.apiserver.options import ServeOptions
from restow.apiserver.serve import load_kinds, serve, serve_aggregated
from restow.registry.declared import declare_kind

__all__ = [
    "AggregatedOptions",
    "ServeOptions",
    "declare_kind",
    "load_kinds",
    "serve",
    "serve_aggregated",
]
