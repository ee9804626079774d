"""The web dashboard: storage versions per server, persisted versions, and progress of migrations.

    static/   one page: HTML, CSS and JavaScript modules; there is no build step
    assets    these files with their HTTP headers, such as the content security policy
    links     requests a sign-in link from a server

Not here: any source of truth. The dashboard is a client of the API. The paths at which a server
serves it are in `restow.apiserver.dashboard`.
"""

from restow.dashboard.assets import INDEX, SECURITY_LINES, Asset, load_assets

__all__ = ["INDEX", "SECURITY_LINES", "Asset", "load_assets"]
