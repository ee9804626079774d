"""The page for a person: who stores what in which version, and how far a migration is.

    static/   one page: HTML, CSS and modules as the browser reads them; there is no build step
    assets    these files as a server sends them, with what the browser may do with them
    links     asking a server for a link that lets a person in

Not here: any source of truth. The dashboard is a client of the API. The paths at which a server
answers it are put together in `restow.apiserver.dashboard`.
"""

from restow.dashboard.assets import INDEX, SECURITY_LINES, Asset, load_assets

__all__ = ["INDEX", "SECURITY_LINES", "Asset", "load_assets"]
