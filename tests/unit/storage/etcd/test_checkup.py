"""The status query of each etcd member, for the doctor."""

from restow.aio import Runtime
from restow.storage.checkup import EtcdFacts, check_up
from tests.support.etcd_process import EtcdCluster


async def test_a_member_that_is_up_and_one_that_is_not(etcd: EtcdCluster, runtime: Runtime) -> None:
    """The running member has a status; only the other one has an error."""
    facts = await check_up(f"{etcd.url},127.0.0.1:1", runtime)
    assert isinstance(facts, EtcdFacts)
    up, down = facts.members
    assert (up.problem, up.has_leader, up.is_learner) == ("", True, False)
    assert up.version.startswith("3.")
    assert up.revision >= 1
    assert 0 < up.bytes_used <= up.bytes_held
    assert (up.alarms, up.errors) == ((), ())
    assert down.endpoint == "127.0.0.1:1"
    assert "connect" in down.problem
