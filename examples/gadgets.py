"""An aggregated API server behind a main server, in a few lines.

Start a main server with `.venv/bin/restow serve --data-dir .restow`, then this one with
`.venv/bin/python examples/gadgets.py`. It registers itself, and clients of the main server use it:

    kubectl --kubeconfig .restow/kubeconfig create namespace workshop
    kubectl --kubeconfig .restow/kubeconfig api-resources --api-group=gadgets.example.com
    kubectl --kubeconfig .restow/kubeconfig get apiservices v1.gadgets.example.com

With the store of the main servers (`store="sqlite:.restow/store.db"`) it would be one of their
participating servers; without it, it has a store of its own, and reports to them.
"""

import asyncio
from pathlib import Path

from restow.admission import Attributes, WriteOf
from restow.apimachinery import status
from restow.apiserver import AggregatedOptions, ServeOptions, declare_kind, serve_aggregated

GADGETS = declare_kind(
    group="gadgets.example.com",
    kind="Gadget",
    plural="gadgets",
    versions={
        "v1": {
            "type": "object",
            "properties": {
                "spec": {
                    "type": "object",
                    "properties": {"level": {"type": "integer", "minimum": 0}},
                }
            },
        }
    },
)


class Limits:
    """Admission: the original user is known, although the main server received the request."""

    def concerns(self, write: WriteOf) -> bool:
        return write.operation != "DELETE"

    def review(self, attributes: Attributes) -> None:
        spec = (attributes.obj or {}).get("spec") or {}
        if spec.get("level", 0) > 9:
            raise status.forbidden(f"{attributes.user.name} may not create gadgets above level 9")


if __name__ == "__main__":
    options = AggregatedOptions(
        serve=ServeOptions(data_dir=Path(".gadgets"), port=6445),
        main_kubeconfig=Path(".restow/kubeconfig"),
    )
    asyncio.run(serve_aggregated(options, kinds=[GADGETS], admission=[Limits()]))
