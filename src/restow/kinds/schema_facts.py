"""Facts about the schemas of the built-in types, beyond names and types.

Fields that clients must send although Go omits them when empty, and the reverse; fields with
enumerated values; default values of absent fields; structs of which one field is set. A field is
named `Struct.field`, for all versions; if two groups differ, the name begins with group and version
(`core.v1.Event.reason`).

Not here: the tables of the types, their merge rules (`restow.apimachinery.apply`), and validation,
which checks more than a schema.
"""

from collections.abc import Mapping
from functools import cache
from typing import Final

from restow.apimachinery.types import Field, Scalar, Struct, Type

_API: Final = "io.k8s.api."


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Go always writes these fields; clients may omit them.
_OPTIONAL: Final = _names("""
    AllocatedDeviceStatus.conditions AzureFilePersistentVolumeSource.secretNamespace
    CSINodeDriver.topologyKeys CapacityRequestPolicy.default ClusterRole.rules
    ContainerImage.names CustomResourceDefinitionStatus.acceptedNames
    CustomResourceDefinitionStatus.conditions CustomResourceDefinitionStatus.storedVersions
    DeviceClaim.requests DeviceRequest.deviceClassName EndpointSlice.endpoints
    EndpointSlice.ports Event.reportingComponent FlowSchemaSpec.matchingPrecedence
    GRPCAction.service HorizontalPodAutoscalerStatus.currentMetrics
    IngressClassParametersReference.scope
    LimitedPriorityLevelConfiguration.nominalConcurrencyShares NetworkPolicySpec.podSelector
    NodeRuntimeHandler.name PodDisruptionBudgetStatus.currentHealthy
    PodDisruptionBudgetStatus.desiredHealthy PodDisruptionBudgetStatus.disruptionsAllowed
    PodDisruptionBudgetStatus.expectedPods PodFailurePolicyOnPodConditionsPattern.status
    PriorityClass.value ProjectedVolumeSource.sources QueuingConfiguration.handSize
    QueuingConfiguration.queueLengthLimit QueuingConfiguration.queues ResourceClaimSpec.devices
    ResourcePolicyRule.namespaces Role.rules RoleRef.apiGroup StatefulSetOrdinals.start
    StatefulSetSpec.serviceName StatefulSetStatus.availableReplicas StorageVersion.spec
    StorageVersion.status TokenRequest.spec TokenRequestSpec.audiences
    TokenRequestSpec.boundObjectRef TokenRequestSpec.expirationSeconds
    TokenRequestStatus.expirationTimestamp TokenRequestStatus.token
    TypedLocalObjectReference.apiGroup TypedObjectReference.apiGroup
    core.v1.Event.reportingInstance events.v1.Event.metadata
    """)

# Go omits these fields when they are empty; clients must send them.
_REQUIRED: Final = _names("""
    CapacityRequestPolicyRange.min ContainerRestartRule.action
    ContainerRestartRuleOnExitCodes.operator CounterSet.counters CronJob.spec
    DeviceCounterConsumption.counters DeviceTaintRuleSpec.taint HorizontalPodAutoscaler.spec
    IPAddress.spec IPAddressSpec.parentRef ImageVolumeStatus.imageRef LeaseCandidate.spec
    LeaseCandidateSpec.strategy ParentReference.name ParentReference.resource
    PodCertificateProjection.keyType PodCertificateProjection.signerName PoolStatus.driver
    PoolStatus.poolName ResourcePoolStatusRequest.metadata
    ResourcePoolStatusRequestStatus.poolCount ServerStorageVersion.apiServerID
    ServerStorageVersion.decodableVersions ServerStorageVersion.encodingVersion
    StorageVersion.metadata StorageVersionCondition.message TokenReviewSpec.token
    ValidatingAdmissionPolicyBinding.spec ValidatingAdmissionPolicyBindingSpec.policyName
    ValidatingAdmissionPolicyBindingSpec.validationActions
    """)

# The enumerated values of a field, or of each value in a list or map.
_WORDS: Final[dict[str, str]] = {
    "AppArmorProfile.type SeccompProfile.type": "Localhost|RuntimeDefault|Unconfined",
    "AzureDiskVolumeSource.cachingMode": "None|ReadOnly|ReadWrite",
    "AzureDiskVolumeSource.kind": "Dedicated|Managed|Shared",
    "CertificateSigningRequestSpec.usages": (
        "any|cert sign|client auth|code signing|content commitment|crl sign|data encipherment|"
        "decipher only|digital signature|email protection|encipher only|ipsec end system|"
        "ipsec tunnel|ipsec user|key agreement|key encipherment|microsoft sgc|netscape sgc|"
        "ocsp signing|s/mime|server auth|signing|timestamping"
    ),
    "Container.imagePullPolicy EphemeralContainer.imagePullPolicy ImageVolumeSource.pullPolicy": (
        "Always|IfNotPresent|Never"
    ),
    "Container.terminationMessagePolicy EphemeralContainer.terminationMessagePolicy": (
        "FallbackToLogsOnError|File"
    ),
    "ContainerPort.protocol EndpointPort.protocol IngressPortStatus.protocol "
    "NetworkPolicyPort.protocol PortStatus.protocol ServicePort.protocol": "SCTP|TCP|UDP",
    "CronJobSpec.concurrencyPolicy": "Allow|Forbid|Replace",
    "DaemonSetUpdateStrategy.type StatefulSetUpdateStrategy.type": "OnDelete|RollingUpdate",
    "DeploymentStrategy.type": "Recreate|RollingUpdate",
    "DeviceAllocationConfiguration.source": "FromClaim|FromClass",
    "DeviceRequest.allocationMode DeviceSubRequest.allocationMode "
    "ExactDeviceRequest.allocationMode": "All|ExactCount",
    "DeviceTaint.effect DeviceToleration.effect": "NoExecute|NoSchedule|None",
    "DeviceToleration.operator": "Equal|Exists",
    "EndpointSlice.addressType": "FQDN|IPv4|IPv6",
    "HTTPGetAction.scheme": "HTTP|HTTPS",
    "HTTPIngressPath.pathType": "Exact|ImplementationSpecific|Prefix",
    "HostPathVolumeSource.type": (
        "|BlockDevice|CharDevice|Directory|DirectoryOrCreate|File|FileOrCreate|Socket"
    ),
    "JobSpec.completionMode": "Indexed|NonIndexed",
    "JobSpec.podReplacementPolicy": "Failed|TerminatingOrFailed",
    "MatchResources.matchPolicy MutatingWebhook.matchPolicy ValidatingWebhook.matchPolicy": (
        "Equivalent|Exact"
    ),
    "ModifyVolumeStatus.status": "InProgress|Infeasible|Pending",
    "MutatingAdmissionPolicySpec.failurePolicy MutatingWebhook.failurePolicy "
    "ValidatingAdmissionPolicySpec.failurePolicy ValidatingWebhook.failurePolicy": "Fail|Ignore",
    "MutatingAdmissionPolicySpec.reinvocationPolicy MutatingWebhook.reinvocationPolicy": (
        "IfNeeded|Never"
    ),
    "MutatingWebhook.sideEffects ValidatingWebhook.sideEffects": "None|NoneOnDryRun|Some|Unknown",
    "Mutation.patchType": "ApplyConfiguration|JSONPatch",
    "NamedRuleWithOperations.operations RuleWithOperations.operations": (
        "*|CONNECT|CREATE|DELETE|UPDATE"
    ),
    "NamedRuleWithOperations.scope RuleWithOperations.scope": "*|Cluster|Namespaced",
    "NamespaceStatus.phase": "Active|Terminating",
    "NetworkPolicySpec.policyTypes": "Egress|Ingress",
    "NodeSelectorRequirement.operator": "DoesNotExist|Exists|Gt|In|Lt|NotIn",
    "NodeStatus.phase": "Pending|Running|Terminated",
    "PersistentVolumeClaimSpec.accessModes PersistentVolumeClaimStatus.accessModes "
    "PersistentVolumeSpec.accessModes": (
        "ReadOnlyMany|ReadWriteMany|ReadWriteOnce|ReadWriteOncePod"
    ),
    "PersistentVolumeClaimSpec.volumeMode PersistentVolumeSpec.volumeMode": "Block|Filesystem",
    "PersistentVolumeClaimStatus.allocatedResourceStatuses": (
        "ControllerResizeInProgress|ControllerResizeInfeasible|NodeResizeInProgress|"
        "NodeResizeInfeasible|NodeResizePending"
    ),
    "PersistentVolumeClaimStatus.phase": "Bound|Lost|Pending",
    "PersistentVolumeSpec.persistentVolumeReclaimPolicy StorageClass.reclaimPolicy": (
        "Delete|Recycle|Retain"
    ),
    "PersistentVolumeStatus.phase": "Available|Bound|Failed|Pending|Released",
    "PodDisruptionBudgetSpec.unhealthyPodEvictionPolicy": "AlwaysAllow|IfHealthyBudget",
    "PodFailurePolicyOnExitCodesRequirement.operator": "In|NotIn",
    "PodFailurePolicyRule.action": "Count|FailIndex|FailJob|Ignore",
    "PodSecurityContext.fsGroupChangePolicy": "Always|OnRootMismatch",
    "PodSecurityContext.supplementalGroupsPolicy": "Merge|Strict",
    "PodSpec.dnsPolicy": "ClusterFirst|ClusterFirstWithHostNet|Default|None",
    "PodSpec.preemptionPolicy PriorityClass.preemptionPolicy": "Never|PreemptLowerPriority",
    "PodSpec.restartPolicy": "Always|Never|OnFailure",
    "PodStatus.phase": "Failed|Pending|Running|Succeeded|Unknown",
    "PodStatus.qosClass": "BestEffort|Burstable|Guaranteed",
    "ResourceQuotaSpec.scopes ScopedResourceSelectorRequirement.scopeName": (
        "BestEffort|CrossNamespacePodAffinity|NotBestEffort|NotTerminating|PriorityClass|"
        "Terminating|VolumeAttributesClass"
    ),
    "ScopedResourceSelectorRequirement.operator": "DoesNotExist|Exists|In|NotIn",
    "SecurityContext.procMount": "Default|Unmasked",
    "ServiceSpec.externalTrafficPolicy ServiceSpec.internalTrafficPolicy": "Cluster|Local",
    "ServiceSpec.ipFamilies": "|IPv4|IPv6",
    "ServiceSpec.ipFamilyPolicy": "PreferDualStack|RequireDualStack|SingleStack",
    "ServiceSpec.sessionAffinity": "ClientIP|None",
    "ServiceSpec.type": "ClusterIP|ExternalName|LoadBalancer|NodePort",
    "StatefulSetSpec.podManagementPolicy": "OrderedReady|Parallel",
    "StorageClass.volumeBindingMode": "Immediate|WaitForFirstConsumer",
    "Taint.effect Toleration.effect": "NoExecute|NoSchedule|PreferNoSchedule",
    "Toleration.operator": "Equal|Exists|Gt|Lt",
    "TopologySpreadConstraint.nodeAffinityPolicy TopologySpreadConstraint.nodeTaintsPolicy": (
        "Honor|Ignore"
    ),
    "TopologySpreadConstraint.whenUnsatisfiable": "DoNotSchedule|ScheduleAnyway",
    "ValidatingAdmissionPolicyBindingSpec.validationActions": "Audit|Deny|Warn",
    "ValidationRule.reason": (
        "FieldValueDuplicate|FieldValueForbidden|FieldValueInvalid|FieldValueRequired"
    ),
    "VolumeMount.mountPropagation": "Bidirectional|HostToContainer|None",
}

# Structs of which one field is set: the discriminator, and the fields.
_UNIONS: Final[dict[str, tuple[str, str]]] = {
    "AppArmorProfile": ("type", "localhostProfile"),
    "LimitResponse": ("type", "queuing"),
    "PodSchedulingGroup": ("", "podGroupName"),
    "PriorityLevelConfigurationSpec": ("type", "exempt limited"),
    "SeccompProfile": ("type", "localhostProfile"),
    "flowcontrol.v1.Subject": ("kind", "group serviceAccount user"),
}

_SIGNALS: Final = """
    SIGABRT SIGALRM SIGBUS SIGCHLD SIGCLD SIGCONT SIGFPE SIGHUP SIGILL SIGINT SIGIO SIGIOT SIGKILL
    SIGPIPE SIGPOLL SIGPROF SIGPWR SIGQUIT SIGRTMAX SIGRTMIN SIGSEGV SIGSTKFLT SIGSTOP SIGSYS
    SIGTERM SIGTRAP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGUSR1 SIGUSR2 SIGVTALRM SIGWINCH SIGXCPU
    SIGXFSZ
"""
_SIGNAL_FIELDS: Final = ("ContainerStatus.stopSignal", "Lifecycle.stopSignal")

# Default values in the schema, except for the zero of a field that Go always writes.
_DEFAULTS: Final[dict[str, str | int | bool]] = {
    "AzureDiskVolumeSource.cachingMode": "ReadWrite",
    "AzureDiskVolumeSource.fsType": "ext4",
    "AzureDiskVolumeSource.kind": "Shared",
    "AzureDiskVolumeSource.readOnly": False,
    "ConfigMapEnvSource.name": "",
    "ConfigMapKeySelector.name": "",
    "ConfigMapProjection.name": "",
    "ConfigMapVolumeSource.name": "",
    "ContainerPort.protocol": "TCP",
    "DeviceToleration.operator": "Equal",
    "FileKeySelector.optional": False,
    "GRPCAction.service": "",
    "ISCSIPersistentVolumeSource.iscsiInterface": "default",
    "ISCSIVolumeSource.iscsiInterface": "default",
    "LocalObjectReference.name": "",
    "RBDPersistentVolumeSource.keyring": "/etc/ceph/keyring",
    "RBDPersistentVolumeSource.pool": "rbd",
    "RBDPersistentVolumeSource.user": "admin",
    "RBDVolumeSource.keyring": "/etc/ceph/keyring",
    "RBDVolumeSource.pool": "rbd",
    "RBDVolumeSource.user": "admin",
    "ReplicationControllerSpec.minReadySeconds": 0,
    "ReplicationControllerSpec.replicas": 1,
    "ResourcePoolStatusRequestSpec.limit": 100,
    "ScaleIOPersistentVolumeSource.fsType": "xfs",
    "ScaleIOPersistentVolumeSource.storageMode": "ThinProvisioned",
    "ScaleIOVolumeSource.fsType": "xfs",
    "ScaleIOVolumeSource.storageMode": "ThinProvisioned",
    "ScaleSpec.replicas": 0,
    "SecretEnvSource.name": "",
    "SecretKeySelector.name": "",
    "SecretProjection.name": "",
    "ServicePort.protocol": "TCP",
}

_ZEROS: Final[dict[Scalar, str | int | bool]] = {
    Scalar.STRING: "",
    Scalar.BOOL: False,
    Scalar.INT32: 0,
    Scalar.INT64: 0,
    Scalar.FLOAT64: 0,
}


def is_required(struct: Struct, field: Field) -> bool:
    """Whether clients must send a field."""
    if field.omitempty:
        return _is_named(_REQUIRED, struct, field)
    return not _is_named(_OPTIONAL, struct, field)


def words_of(struct: Struct, field: Field) -> tuple[str, ...]:
    """Return the enumerated values of a field, or of each item of it; empty if none."""
    return _words().get(f"{struct.short_name}.{field.json}", ())


def union_of(struct: Struct) -> tuple[str, dict[str, str]] | None:
    """Return the discriminator of a union, and its value for each of the other fields."""
    union = _UNIONS.get(struct.short_name) or _UNIONS.get(struct.name.removeprefix(_API))
    if union is None:
        return None
    return union[0], {name: name[0].upper() + name[1:] for name in union[1].split()}


def default_of(struct: Struct, field: Field) -> str | int | bool | None:
    """Return the default of an absent field in the schema, if it has one."""
    default = _DEFAULTS.get(f"{struct.short_name}.{field.json}")
    if default is not None or field.omitempty or field.pointer:
        return default
    return zero_of(field.type)


def zero_of(type_: Type) -> str | int | bool | None:
    """Return the zero of a scalar; other types have none."""
    return _ZEROS.get(type_) if isinstance(type_, Scalar) else None


def _is_named(names: frozenset[str], struct: Struct, field: Field) -> bool:
    if f"{struct.short_name}.{field.json}" in names:
        return True
    return f"{struct.name.removeprefix(_API)}.{field.json}" in names


@cache
def _words() -> Mapping[str, tuple[str, ...]]:
    """The enumerated values by field. Real-time signals are numbered from both ends."""
    by_field = {
        name: tuple(words.split("|")) for names, words in _WORDS.items() for name in names.split()
    }
    upwards = [f"SIGRTMIN+{number}" for number in range(1, 16)]
    downwards = [f"SIGRTMAX-{number}" for number in range(1, 15)]
    signals = tuple(sorted([*_SIGNALS.split(), *upwards, *downwards]))
    return {**by_field, **dict.fromkeys(_SIGNAL_FIELDS, signals)}
