"""Resources that this project's clients use, with group, version and plural.

Not here: what a server hosts (`restow.registry.catalog`), and the kinds themselves.
"""

from typing import Final

from restow.apimachinery.names import GroupVersion
from restow.apis import coordination_v1, internal_v1alpha1, migration_v1alpha1

LEASES: Final = GroupVersion.parse(coordination_v1.API_VERSION).with_resource("leases")
STATES: Final = GroupVersion.parse(migration_v1alpha1.API_VERSION).with_resource("storagestates")
STORAGE_VERSIONS: Final = GroupVersion.parse(internal_v1alpha1.API_VERSION).with_resource(
    "storageversions"
)
DEFINITIONS: Final = GroupVersion("apiextensions.k8s.io", "v1").with_resource(
    "customresourcedefinitions"
)

IN_TREE_GROUP: Final = "storagemigration.k8s.io"
"""The migrations of Kubernetes' own API."""
