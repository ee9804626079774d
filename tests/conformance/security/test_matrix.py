"""Every kind, verb and subresource, asked by everybody: the exact answer for each.

One server in this process is sent every cell by each of them, over HTTP, through the whole chain.
Half of all rights go to one user and half to another, so that a right which stands for its
neighbour (another verb, a part, a kind of the same name in another group) is noticed.
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
# What whoever is known may ask about themselves.
EVERYBODYS = {
    Right("authorization.k8s.io", "selfsubjectaccessreviews", "create"),
    Right("authorization.k8s.io", "selfsubjectrulesreviews", "create"),
    Right("authentication.k8s.io", "selfsubjectreviews", "create"),
}
USERS = ("", "nobody-special", "role-even", "role-odd", "cluster-even", "cluster-odd", MASTER)


@dataclass(frozen=True)
class Matrix:
    """Two servers, all cells, and who was given what."""

    world: World
    closed: World
    cells: list[Cell]
    rights: dict[str, set[Right]]

    def may(self, user: str, cell: Cell) -> bool:
        """What should be."""
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
    """Whether it is exactly the refusal for them."""
    if reply.status != 403 or reply.reason != "Forbidden":
        return False
    return reply.message == cell.refusal_of(user or ANONYMOUS)


async def test_nothing_is_left_out(matrix: Matrix) -> None:
    """The cells are those of everything that discovery shows, custom resources among them."""
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
    """Whoever has the right is answered by the resource; whoever has not, by the words of 403."""
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
    # Nobody's half is empty by mistake.
    assert bool(allowed) is bool(user)
    assert (allowed == len(matrix.cells)) is (user == MASTER)


async def test_nobody_comes_in_where_anonymous_is_off(matrix: Matrix) -> None:
    """Every cell is a 401 for whoever shows no credential, and what is public, too."""
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
async def test_while_nothing_may_be_written(matrix: Matrix, user: str) -> None:
    """Before the barrier opens it is a 403 for whoever may not, and a 503 only for others."""
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


async def test_reviews_say_the_same(matrix: Matrix) -> None:
    """A review of each right, in each place, answers as the request itself would be."""
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


# By path: who may read it, of nobody, whoever is known, and masters.
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
    """What is no resource is for those that the default roles name, by GET alone."""
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


async def test_the_roles_of_a_namespace_are_about_the_namespace_too(matrix: Matrix) -> None:
    """A namespace lies within itself: its own roles let it be read, and no other namespace."""
    right = Right("", "namespaces", "get")
    for half in ("even", "odd"):
        client = matrix.world.client(f"role-{half}")
        expected = 200 if right in matrix.rights[f"role-{half}"] else 403
        assert (await client.get(f"/api/v1/namespaces/{MINE}")).status == expected
        assert (await client.get(f"/api/v1/namespaces/{OTHER}")).status == 403
        assert (await client.get("/api/v1/namespaces")).status == 403


async def test_what_is_not_there_is_nobodys_business(matrix: Matrix) -> None:
    """Whoever may not ask cannot learn which groups, versions, kinds, parts and verbs exist."""
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
    """The role of a namespace reaches nothing of the cluster by a path in that namespace, and
    nothing of a namespace by the cluster's path."""
    both = [matrix.world.client(f"role-{half}") for half in ("even", "odd")]
    master = matrix.world.client(MASTER)
    for cell in matrix.cells:
        kind = cell.resource.kind
        if kind.namespaced or kind.plural == "namespaces":
            continue
        path = cell.target.replace(f"/{kind.plural}", f"/namespaces/{MINE}/{kind.plural}", 1)
        assert (await master.request(cell.method, path, cell.body)).status == 404, path
        # A rule is for a kind by its name alone, so that one of them has the right to ask.
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
