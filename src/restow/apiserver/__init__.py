"""One API server process: the composition root that joins storage, resources and serving.

    from restow.apiserver import ServeOptions, declare_kind, serve

Not here: anything that a test or another program could want without a whole server.
"""

from restow.apiserver.options import ServeOptions
from restow.apiserver.serve import serve
from restow.resources.declared import declare_kind

__all__ = ["ServeOptions", "declare_kind", "serve"]
