"""Custom resources: from a stored definition to a resource that is hosted like any other.

`crds` reads a CustomResourceDefinition, `custom_resource` makes a `Resource` of it, `shape` knows
its fields and `replicas` its scale, `conversion` asks others for other versions, and
`crd_shape` keeps what servers write among the stored versions.

Not here: rules about definitions (`restow.kinds`), schemas themselves
(`restow.apimachinery.structural`), following and registering
(`restow.storageversion.custom_resources`), HTTP.
"""
