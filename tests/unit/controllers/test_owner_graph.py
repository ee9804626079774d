"""The graph of owners, compared with a simple model."""

from hypothesis import given
from hypothesis import strategies as st

from restow.controllers.object_keys import OwnerReference
from restow.controllers.owner_graph import OwnerGraph, Ties

UIDS = [f"u{number}" for number in range(4)]
REFERENCES = st.lists(
    st.builds(
        OwnerReference,
        uid=st.sampled_from(UIDS),
        block_owner_deletion=st.sampled_from([True, False, None]),
    ),
    max_size=3,
    unique_by=lambda reference: reference.uid,
)
STEPS = st.lists(st.tuples(st.sampled_from("abcde"), st.none() | REFERENCES), max_size=30)


@given(STEPS)
def test_the_graph_knows_all_dependents(
    steps: list[tuple[str, list[OwnerReference] | None]],
) -> None:
    """After any changes it returns the same as a search through all objects."""
    graph, twin = OwnerGraph(), dict[str, dict[str, bool]]()
    for key, owners in steps:
        before = twin.pop(key, None)
        if owners is None:
            known = graph.drop(key)
        else:
            twin[key] = {each.uid: bool(each.block_owner_deletion) for each in owners}
            known = graph.tie(key, Ties.of(owners, own_uid=""))
        assert (known is None) == (before is None)
        if known is not None and before is not None:
            assert set(known.blocking) == {uid for uid, blocks in before.items() if blocks}
        assert len(graph) == len(twin)
        for uid in UIDS:
            assert set(graph.dependents_of(uid)) == {k for k, ties in twin.items() if uid in ties}
            assert graph.is_blocked(uid) == any(ties.get(uid) for ties in twin.values())


def test_a_graph_without_objects_is_empty() -> None:
    """A graph without objects is empty, so its memory depends on what is stored."""
    graph = OwnerGraph()
    graph.tie("a", Ties(("u",), ("v",)))
    graph.drop("a")
    assert not len(graph)
    assert not graph._dependents
