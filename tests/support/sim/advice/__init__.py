"""Worlds with advice: `preflight`, `upgrade` and `status` compared with the raw store.

Operators do what breaks naive bookkeeping, ask whether a release is safe, and follow the answer.
The other worlds check that servers keep their protocol; these check that no command answers "safe",
"ok" or "verified" when a raw value contradicts it.

    reference   a simple reader of raw values, independent of the production code
    soundness   compares answers with the results of the reference reader
    plan        the operators' steps, from a seed
    operator    requests of operators to a cluster
    director    executes a plan, repairs the cluster, and waits until the answer is "safe"

Not here: rules of the production code.
"""
