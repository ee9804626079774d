"""The CRD controller accepts names and establishes CRDs."""

import asyncio

import orjson
import pytest

from restow.apimachinery.status_error import StatusError
from restow.controllers.crds import (
    ESTABLISH_SECONDS_MAX,
    CrdController,
    CrdControllerOptions,
    Wake,
)
from restow.registry.reconcile_loops import run_worker
from restow.storage.errors import Unavailable
from restow.storage.interface import Outcome, Put, Transaction, Unknown
from restow.storage.memory import MemoryStorage
from tests.unit.controllers.custom import (
    DEFINITION,
    DEFINITIONS,
    accepted_names,
    conditions,
    define,
    definition,
    edit_names,
    is_defined,
    undefine,
)
from tests.unit.controllers.world import Object, Observed, World, open_world

ACCEPTED = ("True", "NoConflicts")
IS_ESTABLISHED = ("True", "InitialNamesAccepted")


class Servers:
    """Simulates which resources the servers of a cluster serve."""

    def __init__(self) -> None:
        self.served: set[str] = set()
        self.asked: list[tuple[str, str, str]] = []
        self.told: Wake | None = None
        self.options = CrdControllerOptions(served_by_all=self._served, wake=self._take)

    def _served(self, group: str, plural: str, uid: str) -> bool:
        self.asked.append((group, plural, uid))
        return f"{plural}.{group}" in self.served

    def _take(self, wake: Wake | None) -> None:
        self.told = wake

    def serve(self, plural: str, group: str = "example.com") -> None:
        self.served.add(f"{plural}.{group}")
        if self.told is not None:
            self.told(group, plural)


async def begin(
    world: World, options: CrdControllerOptions | None = None
) -> tuple[CrdController, Observed]:
    controller = CrdController(world.store, world.catalog, world.runtime, options)
    return controller, await world.observe(controller)


async def settle(controller: CrdController, observed: Observed) -> None:
    await observed.settle(controller.queue, controller.reconcile)
    await observed.settle(controller.cleaner.queue, controller.cleaner.reconcile)
    await observed.settle(controller.queue, controller.reconcile)


async def test_a_definition_is_accepted_and_established() -> None:
    """The conditions are those of kube-apiserver, and nothing is written after that."""
    async with open_world() as world:
        controller, observed = await begin(world)
        name = await define(
            world, "widgets", "Widget", names={"shortNames": ["wd"], "categories": ["all"]}
        )
        await settle(controller, observed)
        state = (await definition(world, name))["status"]
        assert state["acceptedNames"] == {
            "plural": "widgets",
            "singular": "widget",
            "shortNames": ["wd"],
            "kind": "Widget",
            "listKind": "WidgetList",
            "categories": ["all"],
        }
        assert state["storedVersions"] == ["v1"]
        told = [
            (each["type"], each["status"], each["reason"], each["message"])
            for each in state["conditions"]
        ]
        assert told == [
            ("NamesAccepted", "True", "NoConflicts", "no conflicts found"),
            (
                "Established",
                "True",
                "InitialNamesAccepted",
                "the initial names have been accepted",
            ),
        ]
        revision = await world.storage.revision()
        again, observed = await begin(world)
        await settle(again, observed)
        assert await world.storage.revision() == revision


async def test_crds_of_aggregated_resources_are_not_established() -> None:
    """While aggregated servers serve the resource; the CRD reports it and is established later."""
    others = {"widgets"}
    options = CrdControllerOptions(hosted_otherwise=lambda _group, plural: plural in others)
    async with open_world() as world:
        controller, observed = await begin(world, options)
        name = await define(world, "widgets", "Widget")
        await settle(controller, observed)
        told = (await conditions(world, name))["Established"]
        assert told == ("False", "ServedByAggregatedServers")
        others.clear()
        controller._wake("example.com", "widgets")
        await settle(controller, observed)
        assert (await conditions(world, name))["Established"] == IS_ESTABLISHED


async def test_empty_lists_of_names_are_as_good_as_none() -> None:
    """A CRD with an empty list of short names is established as well."""
    async with open_world() as world:
        controller, observed = await begin(world)
        empty: Object = {"shortNames": [], "categories": []}
        name = await define(world, "widgets", "Widget", names=empty)
        await settle(controller, observed)
        assert await conditions(world, name) == {
            "NamesAccepted": ACCEPTED,
            "Established": IS_ESTABLISHED,
        }


async def test_a_conflict_is_told_and_ends_with_the_other() -> None:
    """The second of two CRDs gets the free names; when the first is deleted, it gets the rest."""
    async with open_world() as world:
        controller, observed = await begin(world)
        first = await define(world, "widgets", "Widget")
        await settle(controller, observed)
        second = await define(world, "gadgets", "Widget", names={"singular": "gadget"})
        await settle(controller, observed)
        state = (await definition(world, second))["status"]
        assert state["acceptedNames"] == {"plural": "gadgets", "singular": "gadget", "kind": ""}
        told = [(each["status"], each["reason"], each["message"]) for each in state["conditions"]]
        assert told == [
            ("False", "ListKindConflict", '"WidgetList" is already in use'),
            ("False", "NotAccepted", "not all names are accepted"),
        ]
        await undefine(world, first)
        await settle(controller, observed)
        assert not await is_defined(world, first)
        assert (await accepted_names(world, second))["kind"] == "Widget"
        assert (await conditions(world, second))["Established"] == IS_ESTABLISHED


async def test_a_new_leader_assigns_names_to_waiting_crds() -> None:
    """Names that became free without a leader are given to waiting CRDs by the next leader."""
    async with open_world() as world:
        controller, observed = await begin(world)
        first = await define(world, "widgets", "Widget")
        second = await define(world, "gadgets", "Widget")
        await settle(controller, observed)
        await undefine(world, first)
        await settle(controller, observed)
        assert (await conditions(world, second))["NamesAccepted"] == ACCEPTED
        await undefine(world, second)
        third = await define(world, "doodads", "Widget")
        again, observed = await begin(world)
        await settle(again, observed)
        assert not await is_defined(world, second)
        assert (await conditions(world, third))["NamesAccepted"] == ACCEPTED


async def test_released_names_go_to_waiting_crds() -> None:
    """A CRD that changes its names frees the old ones, and stays established."""
    async with open_world() as world:
        controller, observed = await begin(world)
        first = await define(world, "widgets", "Widget", names={"shortNames": ["w"]})
        await settle(controller, observed)
        second = await define(world, "gadgets", "Gadget", names={"shortNames": ["w"]})
        await settle(controller, observed)
        assert (await conditions(world, second))["NamesAccepted"] == ("False", "ShortNamesConflict")
        await edit_names(world, first, shortNames=["wd"])
        await settle(controller, observed)
        assert (await accepted_names(world, first))["shortNames"] == ["wd"]
        assert (await accepted_names(world, second))["shortNames"] == ["w"]
        for name in (first, second):
            assert await conditions(world, name) == {
                "NamesAccepted": ACCEPTED,
                "Established": IS_ESTABLISHED,
            }


async def test_a_refused_change_keeps_the_old_names_and_can_be_taken_back() -> None:
    """An established CRD whose new names are rejected keeps its accepted names."""
    async with open_world() as world:
        controller, observed = await begin(world)
        await define(world, "widgets", "Widget")
        second = await define(world, "gadgets", "Gadget")
        await settle(controller, observed)
        await edit_names(world, second, singular="widget")
        await settle(controller, observed)
        assert await conditions(world, second) == {
            "NamesAccepted": ("False", "SingularConflict"),
            "Established": IS_ESTABLISHED,
        }
        assert (await accepted_names(world, second))["singular"] == "gadget"
        await edit_names(world, second, singular="gadget")
        await settle(controller, observed)
        assert (await conditions(world, second))["NamesAccepted"] == ACCEPTED


async def test_names_of_built_in_kinds_are_refused() -> None:
    """Names of built-in kinds of the same group are rejected."""
    async with open_world() as world:
        controller, observed = await begin(world)
        name = await define(
            world,
            "leases",
            "Lease",
            group="coordination.k8s.io",
            metadata={"annotations": {"api-approved.kubernetes.io": "unapproved, a test"}},
        )
        await settle(controller, observed)
        assert await accepted_names(world, name) == {"plural": "", "kind": ""}
        assert await conditions(world, name) == {
            "NamesAccepted": ("False", "ListKindConflict"),
            "Established": ("False", "NotAccepted"),
            "KubernetesAPIApprovalPolicyConformant": ("False", "UnapprovedAnnotation"),
        }


async def test_it_is_established_when_all_servers_serve_it() -> None:
    """Until then it has the reason Installing; the report of a server ends the wait."""
    async with open_world() as world:
        servers = Servers()
        controller, observed = await begin(world, servers.options)
        with controller.woken():
            name = await define(world, "widgets", "Widget")
            await settle(controller, observed)
            assert (await conditions(world, name))["Established"] == ("False", "Installing")
            uid = (await definition(world, name))["metadata"]["uid"]
            assert servers.asked[-1] == ("example.com", "widgets", uid)
            servers.serve("gadgets")
            assert not len(controller.queue)
            servers.serve("widgets")
            await settle(controller, observed)
            assert (await conditions(world, name))["Established"] == IS_ESTABLISHED
        assert servers.told is None


async def test_a_stuck_server_does_not_hold_it_for_ever() -> None:
    """After some seconds it is established nevertheless, each CRD separately."""
    async with open_world() as world:
        controller, observed = await begin(world, Servers().options)
        first = await define(world, "widgets", "Widget")
        await settle(controller, observed)
        await world.clock.advance(ESTABLISH_SECONDS_MAX - 1)
        second = await define(world, "gadgets", "Gadget")
        await settle(controller, observed)
        assert (await conditions(world, first))["Established"] == ("False", "Installing")
        await world.clock.advance(1)
        await settle(controller, observed)
        assert (await conditions(world, first))["Established"] == IS_ESTABLISHED
        assert (await conditions(world, second))["Established"] == ("False", "Installing")


async def test_bad_certificates_are_told() -> None:
    """A CRD with an invalid CA bundle of its webhook is not established until it is corrected."""
    async with open_world() as world:
        controller, observed = await begin(world)
        config: Object = {"url": "https://example.com/convert", "caBundle": "bm8="}
        webhook = {"clientConfig": config, "conversionReviewVersions": ["v1"]}
        name = await define(world, "widgets", "Widget")
        key = world.kind(DEFINITION, DEFINITIONS).key_of(name)
        # As an older server may have stored it: now it is rejected when it is written.
        item = await world.storage.get(key)
        assert item is not None
        conversion = b'"conversion":{"strategy":"None"}'
        bad = b'"conversion":{"strategy":"Webhook","webhook":%b}' % orjson.dumps(webhook)
        assert conversion in item.value
        value = item.value.replace(conversion, bad)
        await world.storage.commit(Transaction(writes=(Put(key, value),)))
        await settle(controller, observed)
        assert (await conditions(world, name))["Established"] == ("False", "InvalidCABundle")

        def correct(obj: Object) -> None:
            del obj["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"]

        await world.edit(DEFINITION, name, correct, group=DEFINITIONS)
        await settle(controller, observed)
        assert (await conditions(world, name))["Established"] == IS_ESTABLISHED


@pytest.mark.parametrize(
    ("said", "status", "reason", "message"),
    [
        (
            "https://example.com/1",
            "True",
            "ApprovedAnnotation",
            "approved in https://example.com/1",
        ),
        (
            "unapproved, a test",
            "False",
            "UnapprovedAnnotation",
            'not approved: "unapproved, a test"',
        ),
    ],
)
async def test_approval_in_protected_groups(
    said: str, status: str, reason: str, message: str
) -> None:
    """CRDs in protected groups have a condition about their approval."""
    async with open_world() as world:
        controller, observed = await begin(world)
        annotations = {"api-approved.kubernetes.io": "unapproved, first"}
        metadata = {"annotations": annotations}
        name = await define(world, "widgets", "Widget", group="x.k8s.io", metadata=metadata)
        await settle(controller, observed)

        def change(obj: Object) -> None:
            obj["metadata"]["annotations"]["api-approved.kubernetes.io"] = said

        await world.edit(DEFINITION, name, change, group=DEFINITIONS)
        await settle(controller, observed)
        [told] = [
            each
            for each in (await definition(world, name))["status"]["conditions"]
            if each["type"] == "KubernetesAPIApprovalPolicyConformant"
        ]
        assert (told["status"], told["reason"], told["message"]) == (status, reason, message)
        assert (await conditions(world, name))["Established"] == IS_ESTABLISHED


async def test_of_many_that_want_one_name_one_gets_it() -> None:
    """Concurrent workers never give a name twice, and each write is made once."""
    async with open_world() as world:
        controller, observed = await begin(world)
        before = await world.storage.revision()
        count = 60
        for number in range(count):
            await define(world, f"w{number}s", "Widget", names={"singular": f"w{number}"})
        await observed.catch_up()
        workers = [
            asyncio.ensure_future(run_worker(controller.queue, controller.reconcile))
            for _ in range(8)
        ]
        await world.clock.settle()
        await observed.catch_up()
        await world.clock.settle()
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        found = [await accepted_names(world, f"w{number}s.example.com") for number in range(count)]
        assert [each["kind"] for each in found].count("Widget") == 1
        assert all(each["plural"] for each in found)
        # Each was created and got its names; one is established.
        assert await world.storage.revision() - before == 2 * count + 1


async def test_a_name_stays_reserved_while_its_write_is_unclear() -> None:
    """While it is unknown whether a CRD has got a name, no other CRD gets it."""

    class Unclear(MemoryStorage):
        is_unclear = False

        async def commit(self, transaction: Transaction) -> Outcome:
            outcome = await super().commit(transaction)
            return Unknown("the response was lost") if self.is_unclear else outcome

    storage = Unclear()
    async with open_world(storage) as world:
        controller, observed = await begin(world)
        first = await define(world, "widgets", "Widget")
        second = await define(world, "gadgets", "Widget")
        storage.is_unclear = True
        with pytest.raises(StatusError):
            await controller.reconcile(first)
        storage.is_unclear = False
        await controller.reconcile(second)
        assert (await conditions(world, second))["NamesAccepted"][0] == "False"
        await settle(controller, observed)
        assert (await conditions(world, first))["NamesAccepted"] == ACCEPTED
        assert (await conditions(world, second))["NamesAccepted"][0] == "False"
    await storage.close()


async def test_a_failed_write_gives_its_names_back_when_it_is_repeated() -> None:
    """A CRD that was deleted after its write failed occupies no names."""

    class Failing(MemoryStorage):
        fails = False

        async def commit(self, transaction: Transaction) -> Outcome:
            if self.fails:
                raise Unavailable("no response")
            return await super().commit(transaction)

    storage = Failing()
    async with open_world(storage) as world:
        controller, observed = await begin(world)
        first = await define(world, "widgets", "Widget")
        storage.fails = True
        with pytest.raises(StatusError):
            await controller.reconcile(first)
        storage.fails = False
        await undefine(world, first)
        second = await define(world, "gadgets", "Widget")
        await settle(controller, observed)
        assert (await conditions(world, second))["NamesAccepted"] == ACCEPTED
    await storage.close()


async def test_unreadable_crds_are_skipped(caplog: pytest.LogCaptureFixture) -> None:
    """An unreadable value is logged and does not stop the processing of others."""
    async with open_world() as world:
        key = world.kind(DEFINITION, DEFINITIONS).key_of("broken.example.com")
        await world.storage.commit(Transaction(writes=(Put(key, b'{"metadata":{}}'),)))
        controller, observed = await begin(world)
        name = await define(world, "widgets", "Widget")
        await settle(controller, observed)
        assert (await conditions(world, name))["NamesAccepted"] == ACCEPTED
        assert "broken.example.com is not a CustomResourceDefinition" in caplog.text
