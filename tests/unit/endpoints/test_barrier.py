"""The write barrier: before a resource is registered, exactly the requests of KEP-2339 pass."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any
from unittest import mock
from urllib.parse import quote

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.aio import Runtime
from restow.apimachinery.status import ServiceUnavailable
from restow.authentication import Authentication, TokenAuthenticator
from restow.endpoints import app as app_module
from restow.endpoints.actions import ACTIONS, UNSTORED, VERBS
from restow.endpoints.app import App
from restow.endpoints.barrier import ERROR_CHARACTERS_MAX, NO_ERROR, WriteBarrier
from restow.endpoints.continue_tokens import ContinueTokens
from restow.endpoints.discovery import Discovery, no_version_hash
from restow.endpoints.handlers.server import Server
from restow.endpoints.health import HealthChecks
from restow.endpoints.nonresource import NonResources
from restow.endpoints.openapi_paths import OpenApi
from restow.httpserver import HttpResponse
from restow.httpserver.request import Headers, HttpRequest, Peer
from restow.kinds.kind import VERBS_ALL
from restow.openapi import ApiInfo
from restow.registry.caches import Caches
from restow.registry.catalog import builtin_catalog
from restow.registry.encoding import FixedPolicy
from restow.registry.resource import Resource
from restow.registry.store import ResourceStore
from restow.request.context import Context, User
from restow.request.metrics import Metrics
from restow.request.offload import Offload
from restow.request.request_info import RequestInfo
from restow.request.responses import respond_text
from restow.storage.memory import MemoryStorage
from tests.support.masters_only import MastersOnly

CATALOG = builtin_catalog()
READS = {"get", "list", "watch"}
# Includes subresources and verbs that no kind declares yet: these must be blocked, too.
SUBRESOURCES = ("", "status", "scale", "finalize", "approval", "token", "eviction", "binding")
TOKEN = "masters-token"
each_resource = pytest.mark.parametrize(
    "resource", tuple(CATALOG), ids=lambda each: str(each.kind.group_resource)
)
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "post")


class Reported:
    """A registration whose pending roots are set by the test."""

    def __init__(self, pending: set[str], error: str = NO_ERROR) -> None:
        self.roots = pending
        self.error = error
        self.completed = False

    def pending(self, resource: Resource) -> str | None:
        return self.error if resource.root in self.roots else None


def everything() -> set[str]:
    return {resource.root for resource in CATALOG}


def found(group: str, version: str, plural: str) -> Resource:
    resource = CATALOG.find(group, version, plural)
    assert resource is not None
    return resource


def passes(barrier: WriteBarrier, resource: Resource, verb: str, subresource: str = "") -> bool:
    info = RequestInfo("", "", verb, is_resource=True, subresource=subresource)
    try:
        barrier(Context(request("GET", "/"), info), resource)
    except ServiceUnavailable:
        return False
    return True


def said(answer: HttpResponse) -> dict[str, Any]:
    assert isinstance(answer.body, bytes)
    told: dict[str, Any] = orjson.loads(answer.body)
    return told


def request(method: str, path: str, query: str = "", accept: str = "*/*") -> HttpRequest:
    headers = Headers([("authorization", f"Bearer {TOKEN}"), ("accept", accept)])
    return HttpRequest(method, path, query, headers, b"{}", Peer(1), 0.0)


class World:
    """A server whose handlers only record their calls."""

    def __init__(self) -> None:
        runtime = Runtime.simulated(1)
        storage = MemoryStorage()
        caches = Caches(storage, runtime)
        self.reported = Reported(set())
        self.reached: list[tuple[str, Resource]] = []
        tokens = TokenAuthenticator({TOKEN: User("admin", ("system:masters",))})
        metrics = Metrics()
        self.app = App(
            Server(
                catalog=CATALOG,
                store=ResourceStore(storage, caches, FixedPolicy(), runtime),
                tokens=ContinueTokens(b"key"),
                runtime=runtime,
                tasks=runtime.tasks("test"),
                access_reviewer=mock.Mock(),
                offload=Offload(runtime),
            ),
            authentication=Authentication([tokens]),
            authorizer=MastersOnly(),
            nonresources=lambda _chain: NonResources(
                discovery=Discovery(CATALOG, no_version_hash, address=""),
                openapi=OpenApi(CATALOG, ApiInfo(version="v0", server_side_apply=False)),
                health=HealthChecks(),
                metrics=metrics,
                version={},
            ),
            metrics=metrics,
            barrier=WriteBarrier(self.reported),
            actions={key: partial(self._act, key[1]) for key in ACTIONS},
        )

    def ask(self, asked: HttpRequest, pending: set[str]) -> HttpResponse:
        """The response while some roots are pending; `reached` lists the handlers that were
        called."""
        self.reached.clear()
        self.reported.roots = pending
        answer = self.app(asked)
        assert isinstance(answer, HttpResponse)
        return answer

    async def _act(self, verb: str, _server: Server, context: Context) -> HttpResponse:
        return await self.note(verb, context)

    async def note(self, handler: str, context: Context) -> HttpResponse:
        assert context.resource is not None
        if context.resource.plural == "bindings":
            self.reached.append(("create", found("", "v1", "pods")))
            return respond_text(200, "reached")
        self.reached.append((handler, context.resource))
        return respond_text(200, "reached")


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    made = World()
    noting = {verb: lambda _server, context, verb=verb: made.note(verb, context) for verb in VERBS}
    unstored = {key: lambda _server, context: made.note("review", context) for key in UNSTORED}
    with (
        mock.patch.dict(VERBS, noting),
        mock.patch.dict(UNSTORED, unstored),
        mock.patch.object(
            app_module, "review", lambda _server, context: made.note("review", context)
        ),
    ):
        yield made


@each_resource
def test_every_verb_and_subresource(resource: Resource) -> None:
    """Pending: only reads and kinds that are not persisted pass; registered: everything passes,
    even if other resources are pending."""
    declared = {each.name for each in resource.kind.subresources}
    before, after = WriteBarrier(Reported(everything())), Reported(everything())
    after.roots.discard(resource.root)
    done = Reported(everything())
    done.completed = True
    for subresource in {*SUBRESOURCES, *declared}:
        # Verbs that do not exist are not reads either.
        for verb in (*VERBS_ALL, "connect", "head", ""):
            expected = verb in READS or not resource.kind.persisted
            assert passes(before, resource, verb, subresource) is expected, (verb, subresource)
            assert passes(WriteBarrier(after), resource, verb, subresource)
            assert passes(WriteBarrier(done), resource, verb, subresource)


def paths_of(resource: Resource, version: str) -> Iterator[tuple[str, str]]:
    """Each path of a resource, with the subresource that it names."""
    group = f"/apis/{resource.group}" if resource.group else "/api"
    where = "/namespaces/n" if resource.kind.namespaced else ""
    collection = f"{group}/{version}{where}/{resource.plural}"
    yield collection, ""
    yield f"{collection}/x", ""
    for subresource in resource.kind.subresources:
        yield f"{collection}/x/{subresource.name}", subresource.name


@each_resource
def test_every_path_and_method(world: World, resource: Resource) -> None:
    """Through the request chain: every path that writes after registration is a 503 before."""
    written = 0
    for version in resource.served:
        for path, _subresource in paths_of(resource, version):
            for method in METHODS:
                world.ask(request(method, path), set())
                open_to = [handler for handler, _ in world.reached]
                before = world.ask(request(method, path), everything())
                if open_to and open_to[0] not in {*READS, "review"}:
                    written += 1
                    assert before.status == 503, (method, path)
                    assert world.reached == []
                else:
                    assert [handler for handler, _ in world.reached] == open_to, (method, path)
    # A Binding is not stored, but it changes a pod.
    assert bool(written) is (resource.kind.persisted or resource.plural == "bindings")


@pytest.mark.parametrize("plural", ["pods", "poddisruptionbudgets"])
def test_an_eviction_waits_for_all_that_it_writes(world: World, plural: str) -> None:
    """It decrements a budget before it deletes the pod: both must be registered, and the error
    names the resource that is not. Other writes of pods do not wait for budgets."""
    group = "policy" if plural == "poddisruptionbudgets" else ""
    resource = found(group, "v1", plural)
    path = "/api/v1/namespaces/n/pods/x"
    answer = world.ask(request("POST", f"{path}/eviction"), {resource.root})
    assert answer.status == 503
    assert f"for resource: {resource.kind.group_resource}," in said(answer)["message"]
    assert world.reached == []
    world.ask(request("PUT", f"{path}/status"), {resource.root})
    assert bool(world.reached) is (plural != "pods")
    world.ask(request("POST", f"{path}/eviction"), everything() - pods_and_budgets())
    assert world.reached


def pods_and_budgets() -> set[str]:
    return {found("", "v1", "pods").root, found("policy", "v1", "poddisruptionbudgets").root}


def test_refusal(world: World) -> None:
    """A 503 with the message of Kubernetes, the last error and Retry-After."""
    world.reported.error = "conflict on configmaps"
    answer = world.ask(request("DELETE", "/apis/apps/v1/namespaces/n/deployments"), everything())
    world.reported.error = NO_ERROR
    assert answer.status == 503
    assert b"Retry-After: 1\r\n" in answer.headers
    assert said(answer) == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "wait for storage version registration to complete for resource:"
        " deployments.apps, last seen error: conflict on configmaps",
        "reason": "ServiceUnavailable",
        "details": {"retryAfterSeconds": 1},
        "code": 503,
    }
    answer = world.ask(request("POST", "/api/v1/namespaces/n/configmaps"), everything())
    assert said(answer)["message"] == (
        "wait for storage version registration to complete for resource: configmaps,"
        " last seen error: <nil>"
    )


def test_long_errors_are_cut() -> None:
    """The message is truncated if the error is long."""
    barrier = WriteBarrier(Reported(everything(), "x" * 10_000))
    info = RequestInfo("", "", "create", is_resource=True)
    with pytest.raises(ServiceUnavailable) as caught:
        barrier(Context(request("POST", "/"), info), found("", "v1", "pods"))
    assert len(caught.value.message) < ERROR_CHARACTERS_MAX + 200


def test_no_other_exceptions(world: World) -> None:
    """Leases, namespaces, storageversions and dry runs are blocked as well, also for
    system:masters."""
    for method, path, query in (
        ("POST", "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions", ""),
        ("PUT", "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions/x/status", ""),
        ("DELETE", "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions", ""),
        ("POST", "/api/v1/namespaces", ""),
        ("PUT", "/api/v1/namespaces/n/finalize", ""),
        ("PUT", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x", ""),
        ("POST", "/api/v1/namespaces/n/configmaps", "dryRun=All"),
        ("POST", "/api/v1/namespaces/n/configmaps", "watch=true"),
    ):
        assert world.ask(request(method, path, query), everything()).status == 503, path


def test_aliases_open_together(world: World) -> None:
    """Two groups that share a store share the state: neither bypasses the barrier of the other."""
    core, alias = "/api/v1/namespaces/n/events", "/apis/events.k8s.io/v1/namespaces/n/events"
    root = found("", "v1", "events").root
    for path in (core, alias):
        assert world.ask(request("POST", path), {root}).status == 503
        assert world.ask(request("POST", path), everything() - {root}).status == 200


def test_opens_by_resource(world: World) -> None:
    """The barrier opens per resource; when all are registered, the registration is not read any
    more."""
    pods, secrets = found("", "v1", "pods").root, "/api/v1/namespaces/n/secrets"
    assert world.ask(request("POST", "/api/v1/namespaces/n/pods"), {pods}).status == 503
    assert world.ask(request("POST", secrets), {pods}).status == 200
    world.reported.completed = True
    assert world.ask(request("POST", "/api/v1/namespaces/n/pods"), {pods}).status == 200
    world.reported.completed = False


_NAMES = sorted({resource.plural for resource in CATALOG})
_GROUPS = sorted({resource.group for resource in CATALOG if resource.group})
_VERSIONS = sorted({version for resource in CATALOG for version in resource.served})
_segment = st.one_of(
    st.sampled_from(_NAMES),
    st.sampled_from([*SUBRESOURCES, "watch", "namespaces", "x", "n", "..", "%2e", "*", "pods/x"]),
    st.text(min_size=1, max_size=4),
)


@st.composite
def targets(draw: st.DrawFn) -> tuple[str, str]:
    """Path and query of a request: valid, nearly valid, and arbitrary."""
    resource = draw(st.sampled_from(tuple(CATALOG)))
    group, version = resource.group, draw(st.sampled_from(resource.served))
    if draw(st.integers(0, 9)) == 0:
        group, version = draw(st.sampled_from(_GROUPS)), draw(st.sampled_from(_VERSIONS))
    parts = ["apis", group, version] if group else ["api", version]
    if draw(st.integers(0, 5)) == 0:
        parts.append("watch")
    if resource.kind.namespaced or draw(st.integers(0, 9)) == 0:
        parts += ["namespaces", "n"]
    parts.append(resource.plural)
    declared = [each.name for each in resource.kind.subresources]
    parts += draw(
        st.one_of(
            st.just([]),
            st.just(["x"]),
            st.sampled_from([*SUBRESOURCES[1:], *declared]).map(lambda each: ["x", each]),
            st.lists(_segment, max_size=4),
        )
    )
    escaped = [quote(part, safe="") if draw(st.booleans()) else part for part in parts]
    if draw(st.integers(0, 9)) == 0:
        place = draw(st.integers(0, len(escaped) - 1))
        escaped[place] = "".join(f"%{byte:02x}" for byte in parts[place].encode())
    path = "/" + "/".join(escaped) + draw(st.sampled_from(["", "", "", "/", "//"]))
    query = draw(st.sampled_from(["", "", "watch=1", "dryRun=All", "limit=1", "a=%zz", "watch=0"]))
    return path.encode("utf-8", "replace").decode("utf-8"), query


@given(
    target=targets(),
    method=st.sampled_from(METHODS),
    accept=st.sampled_from(["*/*", "application/json;as=Table;v=v1;g=meta.k8s.io", "text/html"]),
    opened=st.sets(st.sampled_from(sorted(everything())), max_size=40),
)
def test_no_write_bypasses_the_barrier(
    world: World, target: tuple[str, str], method: str, accept: str, opened: set[str]
) -> None:
    """For any URL: a handler that writes is called only for a registered resource, and a 503 is
    returned only for one that is not."""
    path, query = target
    asked = request(method, path, query, accept)
    world.ask(asked, set())
    reached = list(world.reached)
    answer = world.ask(asked, everything() - opened)
    for handler, resource in world.reached:
        assert handler in {*READS, "review"} or resource.root in opened
        assert (handler == "review") is not resource.kind.persisted
    if answer.status == 503:
        [(handler, resource)] = reached
        assert handler not in {*READS, "review"}
        assert resource.root not in opened
    else:
        assert world.reached == reached
