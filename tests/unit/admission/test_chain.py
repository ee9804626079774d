"""The plug-ins that handle a write are cached, and each plug-in gets its own copy of the object."""

from __future__ import annotations

from typing import Any

import pytest

from restow.admission import Attributes, Chain, RequestAdmission, WriteOf
from restow.admission import chain as chain_module
from restow.apimachinery.status_error import StatusError
from restow.httpserver.request import HttpRequest
from restow.registry.catalog import builtin_catalog
from restow.request.context import Context
from restow.request.request_info import parse_request

Object = dict[str, Any]
CATALOG = builtin_catalog()
CONFIG_MAP: Object = {
    "kind": "ConfigMap",
    "apiVersion": "v1",
    "metadata": {"name": "a", "namespace": "default"},
    "data": {"x": "1"},
}


def context_of(method: str = "POST", plural: str = "configmaps") -> Context:
    info = parse_request(method, f"/api/v1/namespaces/default/{plural}")
    context = Context(HttpRequest.__new__(HttpRequest), info)
    context.resource = CATALOG.find("", "v1", plural)
    return context


class Plugin:
    """Handles config maps, counts calls of `concerns`, and modifies its copies."""

    def __init__(self, answer: Object | None = None) -> None:
        self.questions = 0
        self.is_concerned = True
        self.seen: list[Attributes] = []
        self.answer = answer

    def concerns(self, write: WriteOf) -> bool:
        self.questions += 1
        return self.is_concerned and write.resource.plural == "configmaps"

    async def mutate(self, attributes: Attributes) -> Object | None:
        self.note(attributes)
        return self.answer

    def review(self, attributes: Attributes) -> None:
        self.note(attributes)

    def note(self, attributes: Attributes) -> None:
        self.seen.append(attributes)
        assert attributes.old is None or "spoilt" not in attributes.old
        if attributes.old is not None:
            attributes.old["data"]["x"] = "spoilt"
            attributes.old["spoilt"] = True


def plugins_of(chain: Chain, context: Context | None = None) -> RequestAdmission:
    found = chain.for_request(context or context_of(), "CREATE")
    assert found is not None
    return found


def test_plugins_are_cached_by_kind_of_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`concerns` is called again only after `invalidate`, and the cache has a limit."""
    plugin = Plugin()
    chain = Chain([plugin], [plugin])
    for _ in range(3):
        assert chain.for_request(context_of(plural="secrets"), "CREATE") is None
        assert chain.for_request(context_of(), "CREATE") is not None
    assert plugin.questions == 4
    plugin.is_concerned = False
    assert chain.for_request(context_of(), "CREATE") is not None
    chain.invalidate()
    assert chain.for_request(context_of(), "CREATE") is None
    monkeypatch.setattr(chain_module, "KINDS_OF_WRITES_MAX", 1)
    before = plugin.questions
    for _ in range(2):
        assert chain.for_request(context_of(plural="secrets"), "CREATE") is None
        assert chain.for_request(context_of(), "CREATE") is None
    assert plugin.questions > before + 2
    assert Chain().for_request(context_of(), "DELETE") is None


async def test_each_plugin_gets_its_own_copy_of_the_old_object() -> None:
    """Each plug-in gets its own copy of the old object, in both phases."""
    plugins = [Plugin(), Plugin()]
    chain = Chain(plugins, plugins)
    old = {**CONFIG_MAP, "data": {"x": "0"}}
    found = plugins_of(chain)
    obj = await found.mutate(CONFIG_MAP, old, is_dry_run=False)
    await found.review(obj, old, is_dry_run=True)
    assert obj is CONFIG_MAP
    assert old["data"] == {"x": "0"}
    assert [len(each.seen) for each in plugins] == [2, 2]
    assert [each.dry_run for each in plugins[0].seen] == [False, True]


async def test_the_object_of_a_plugin_is_validated() -> None:
    """The next plug-in gets the validated object of the previous one, without unknown fields."""
    first = Plugin({**CONFIG_MAP, "data": {"x": "2"}, "unknown": 1})
    second = Plugin()
    obj = await plugins_of(Chain([first, second], [])).mutate(CONFIG_MAP, None, is_dry_run=False)
    assert obj == {**CONFIG_MAP, "data": {"x": "2"}}
    assert second.seen[0].obj == obj


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({**CONFIG_MAP, "metadata": {"name": "b", "namespace": "default"}}, "metadata.name"),
        ({**CONFIG_MAP, "kind": "Secret"}, "kind"),
        ({**CONFIG_MAP, "data": 7}, "made the object invalid"),
    ],
)
async def test_an_invalid_object_of_a_plugin_is_an_internal_error(
    answer: Object, message: str
) -> None:
    """Returning another object or an invalid one is an internal error, not one of the client."""
    found = plugins_of(Chain([Plugin(answer)], []))
    with pytest.raises(StatusError, match=message) as caught:
        await found.mutate(CONFIG_MAP, None, is_dry_run=False)
    assert caught.value.code == 500
    with pytest.raises(StatusError, match="not supported"):
        await found.review_delete(None, CONFIG_MAP, is_dry_run=False)
