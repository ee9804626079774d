"""Custom resources: from a stored CRD to a resource that is hosted like any other.

`crds` reads a CustomResourceDefinition, `custom_resource` makes a `Resource` from it, `shape`
applies its schemas, `replicas` reads its scale, `conversion` calls conversion webhooks, and
`crd_shape` keeps the versions that servers write in `storedVersions`.

Not here: validation of CRDs (`restow.kinds`), structural schemas
(`restow.apimachinery.structural`), watching and registering CRDs
(`restow.storageversion.custom_resources`), HTTP.
"""
