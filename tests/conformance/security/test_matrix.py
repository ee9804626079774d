"""Every kind, verb and subresource, requested by every user: the exact response for each.

One server in this process gets every cell from each user, over HTTP, through the whole request
chain. One half of all permissions is granted to one user and the other half to another, so that a
permission that also grants a neighbouring one (another verb, a subresource, a kind of the same name
in another group) is detected.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from tests.conformance.security.cells import MINE, OTHER, READS, Cell, Right, cells
from tests.conformance.security.world import CUSTOM, MASTER, World, running
from tests.support.api_client import Reply

pytestmark = pytest.mark.asyncio(loop_scope="module")

CELLS_MIN = 1_000
SHOWN_MAX = 10
ANONYMOUS = "system:anonymous"
# Reviews that every authenticated user may create about themselves.
EVERYBODYS = {
    Right("authorization.k8s.io", "selfsubjectaccessreviews", "create"),
    Right("authorization.k8s.io", "selfsubjectrulesreviews", "create"),
    Right("authentication.k8s.io", "selfsubjectreviews", "create"),
}
USERS = ("", "nobody-special", "role-even", "role-odd", "cluster-even", "cluster-odd", MASTER)


@dataclass(frozen=True)
class Matrix:
    """Two servers, all cells, and the permissions of each user."""

    world: World
    closed: World
    cells: list[Cell]
    rights: dict[str, set[Right]]

    def may(self, user: str, cell: Cell) -> bool:
        """The expected decision."""
        if user == MASTER:
            return True
        if user and cell.right in EVERYBODYS:
            return True
        if cell.right not in self.rights.get(user, ()):
            return False
        return user.startswith("cluster") or cell.place == MINE


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def matrix() -> AsyncIterator[Matrix]:
    async with running() as (world, closed):
        found = list(cells(world.catalog))
        order = sorted({each.right for each in found}, key=str)
        halves = {"even": set(order[::2]), "odd": set(order[1::2])}
        rights = {}
        for half, given in halves.items():
            await world.give(f"role-{half}", given, namespace=MINE)
            await world.give(f"cluster-{half}", given)
            rights[f"role-{half}"] = rights[f"cluster-{half}"] = given
        yield Matrix(world, closed, found, rights)


async def ask(world: World, user: str, cell: Cell) -> Reply:
    return await world.client(user).request(
        cell.method, cell.target, cell.body, content_type="text/of-no-kind"
    )


def refused(reply: Reply, user: str, cell: Cell) -> bool:
    """Whether a response is exactly the 403 of this user and cell."""
    if reply.status != 403 or reply.reason != "Forbidden":
        return False
    return reply.message == cell.refusal_of(user or ANONYMOUS)


async def test_cells_cover_discovery(matrix: Matrix) -> None:
    """The cells cover everything in discovery, including custom resources."""
    client = matrix.world.client(MASTER)
    shown = set()
    groups = (await client.get("/apis")).json["groups"]
    roots = [f"/apis/{each['groupVersion']}" for group in groups for each in group["versions"]]
    for root in ["/api/v1", *roots]:
        for each in (await client.get(root)).json["resources"]:
            shown |= {(root, each["name"], verb) for verb in each["verbs"]}
    asked = set()
    for cell in matrix.cells:
        group = f"/apis/{cell.resource.group}" if cell.resource.group else "/api"
        asked.add((f"{group}/{cell.version}", cell.right.resource, cell.verb))
    assert asked == shown
    assert len(matrix.cells) > CELLS_MIN
    custom = {each.right.resource for each in matrix.cells if each.right.group == CUSTOM}
    parts = ("", "/status", "/scale")
    assert custom == {f"{kind}{part}" for kind in ("locals", "globals") for part in parts}


@pytest.mark.parametrize("user", USERS)
async def test_matrix(matrix: Matrix, user: str) -> None:
    """An authorized request gets the response of the resource, any other exactly the 403."""
    wrong: list[tuple[str, bytes]] = []
    allowed = 0
    for cell in matrix.cells:
        reply = await ask(matrix.world, user, cell)
        if matrix.may(user, cell):
            allowed += 1
            is_right = reply.status == cell.allowed
        else:
            is_right = refused(reply, user, cell)
        if not is_right:
            wrong.append((str(cell), reply.body))
    assert not wrong, wrong[:SHOWN_MAX]
    # Neither half is empty by mistake.
    assert bool(allowed) is bool(user)
    assert (allowed == len(matrix.cells)) is (user == MASTER)


async def test_anonymous_requests_are_rejected_when_disabled(matrix: Matrix) -> None:
    """Without a credential every cell is a 401, and so are public paths."""
    wrong = []
    for cell in matrix.cells:
        reply = await ask(matrix.closed, "", cell)
        if (reply.status, reply.reason, reply.message) != (401, "Unauthorized", "Unauthorized"):
            wrong.append((str(cell), reply.body))
    assert not wrong, wrong[:SHOWN_MAX]
    for path in ("/", "/healthz", "/livez", "/readyz", "/version", "/api", "/apis", "/metrics"):
        assert (await matrix.closed.client("").get(path)).status == 401, path
    assert (await matrix.closed.client("nobody-special").get("/version")).status == 200


@pytest.mark.parametrize("user", ["", "nobody-special", "role-even", "cluster-odd", MASTER])
async def test_authorization_precedes_the_barrier(matrix: Matrix, user: str) -> None:
    """While the barrier is closed, unauthorized requests get a 403, and only others a 503."""
    wrong = []
    matrix.world.reported.completed = False
    try:
        for cell in matrix.cells:
            if cell.verb in READS:
                continue
            reply = await ask(matrix.world, user, cell)
            if not matrix.may(user, cell):
                is_right = refused(reply, user, cell)
            elif not cell.is_written:
                is_right = reply.status == cell.allowed
            else:
                is_right = reply.status == 503 and reply.header("retry-after") == "1"
            if not is_right:
                wrong.append((str(cell), reply.body))
    finally:
        matrix.world.reported.completed = True
    assert not wrong, wrong[:SHOWN_MAX]


async def test_reviews_agree_with_requests(matrix: Matrix) -> None:
    """A review of each permission, in each namespace, has the same result as the request itself."""
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    wrong = []
    asked = {(each.right, each.namespace): each for each in matrix.cells}
    for (right, namespace), cell in asked.items():
        for user in ("role-even", "cluster-even"):
            attributes = {
                "verb": right.verb,
                "group": right.group,
                "resource": cell.resource.plural,
                "subresource": cell.subresource,
                "namespace": cell.place if cell.is_namespace else namespace,
                "name": cell.name,
            }
            spec = {
                "user": user,
                "groups": ["people", "system:authenticated"],
                "resourceAttributes": attributes,
            }
            reply = await matrix.world.client(MASTER).post(path, {"spec": spec})
            if reply.json["status"]["allowed"] is not matrix.may(user, cell):
                wrong.append((user, str(cell), reply.json["status"]))
    assert not wrong, wrong[:SHOWN_MAX]


# By path: whether anonymous users, authenticated users, and system:masters may read it.
PATHS = {
    "/": (403, 403, 200),
    "/api": (403, 200, 200),
    "/api/": (403, 200, 200),
    "/api/v1": (403, 200, 200),
    "/apis": (403, 200, 200),
    "/apis/apps": (403, 200, 200),
    "/apis/apps/v1": (403, 200, 200),
    f"/apis/{CUSTOM}/v1": (403, 200, 200),
    "/openapi/v2": (403, 200, 200),
    "/openapi/v3": (403, 200, 200),
    "/openapi/v3/apis/apps/v1": (403, 200, 200),
    "/healthz": (200, 200, 200),
    "/healthz/ping": (403, 403, 200),
    "/livez": (200, 200, 200),
    "/livez/ping": (403, 403, 200),
    "/readyz": (200, 200, 200),
    "/version": (200, 200, 200),
    "/version/": (200, 200, 200),
    "/metrics": (403, 403, 200),
    "/metrics/slis": (403, 403, 200),
    "/openid/v1/jwks": (403, 403, 200),
    "/.well-known/openid-configuration": (403, 403, 200),
    "/dashboard": (200, 200, 200),
    "/dashboards": (403, 403, 404),
    "/no/such/path": (403, 403, 404),
    "/apisx": (403, 403, 404),
    "/healthzx": (403, 403, 404),
}


async def test_paths(matrix: Matrix) -> None:
    """Paths that are not resources are allowed by the default roles only, and for GET only."""
    wrong: list[object] = []
    people = ("", "nobody-special", MASTER)
    for path, expected in PATHS.items():
        for user, status in zip(people, expected, strict=True):
            client = matrix.world.client(user)
            reply = await client.get(path)
            served = path.rstrip("/") or "/"
            text = f'forbidden: User "{user or ANONYMOUS}" cannot get path "{served}"'
            if reply.status != status or (status == 403 and reply.message != text):
                wrong.append((user, path, reply.status, reply.body[:200]))
            written = await client.request("POST", path, b"-", content_type="text/of-no-kind")
            if path != "/dashboard" and (written.status == 403) is (user == MASTER):
                wrong.append((user, "POST", path, written.status))
    assert not wrong, wrong[:SHOWN_MAX]


async def test_roles_in_a_namespace_apply_to_the_namespace_object(matrix: Matrix) -> None:
    """A namespace is in itself: its own roles permit to read it, and no other namespace."""
    right = Right("", "namespaces", "get")
    for half in ("even", "odd"):
        client = matrix.world.client(f"role-{half}")
        expected = 200 if right in matrix.rights[f"role-{half}"] else 403
        assert (await client.get(f"/api/v1/namespaces/{MINE}")).status == expected
        assert (await client.get(f"/api/v1/namespaces/{OTHER}")).status == 403
        assert (await client.get("/api/v1/namespaces")).status == 403


async def test_unauthorized_users_cannot_discover_resources(matrix: Matrix) -> None:
    """Unauthorized users cannot discover which groups, versions, kinds, subresources and verbs
    exist."""
    for path in (
        "/apis/no.such.group/v1/things",
        "/apis/apps/v9/deployments",
        "/api/v1/nothings",
        f"/api/v1/namespaces/{MINE}/nothings/x",
        f"/api/v1/namespaces/{MINE}/pods/x/nothing",
        f"/api/v1/namespaces/{MINE}/pods/x/log/more",
    ):
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            for user, expected in (("", {403}), ("role-even", {403}), (MASTER, {404, 405})):
                reply = await matrix.world.client(user).request(method, path)
                assert reply.status in expected, (user, method, path, reply.body)


async def test_cve_2019_11247_no_way_around_by_a_namespace(matrix: Matrix) -> None:
    """A role in a namespace grants nothing at cluster scope by a path in that namespace, and
    nothing in a namespace by a path at cluster scope."""
    both = [matrix.world.client(f"role-{half}") for half in ("even", "odd")]
    master = matrix.world.client(MASTER)
    for cell in matrix.cells:
        kind = cell.resource.kind
        if kind.namespaced or kind.plural == "namespaces":
            continue
        path = cell.target.replace(f"/{kind.plural}", f"/namespaces/{MINE}/{kind.plural}", 1)
        assert (await master.request(cell.method, path, cell.body)).status == 404, path
        # A rule names a kind without its scope, so one of the users has the permission.
        found = sorted([(await each.request(cell.method, path, cell.body)).status for each in both])
        expected = [404, 404] if cell.right in EVERYBODYS else [403, 404]
        assert found == expected, path
    for things in (f"/apis/{CUSTOM}/v1/locals", "/api/v1/configmaps", "/apis/apps/v1/deployments"):
        for method, path, code in (
            ("POST", things, 405),
            ("DELETE", things, 405),
            ("GET", f"{things}/x", 404),
            ("PUT", f"{things}/x", 404),
            ("PATCH", f"{things}/x", 404),
            ("DELETE", f"{things}/x", 404),
        ):
            assert (await master.request(method, path, b"{}")).status == code, path
            for client in both:
                assert (await client.request(method, path, b"{}")).status == 403, path
