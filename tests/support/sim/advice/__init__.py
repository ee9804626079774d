"""Worlds about advice: what `preflight`, `upgrade` and `status` say, against the raw store.

Operators do what breaks naive bookkeeping, ask whether a release is safe, and follow the answer.
The other worlds check that servers keep their protocol; these check that nobody is told "safe",
"ok" or "verified" when a raw value says otherwise.

    reference   a simple reader of raw values, independent of the production code
    soundness   what was said, against what the reference reader finds
    plan        what operators do, from a seed
    operator    what operators ask of a cluster, and do to it
    director    lets a plan happen, repairs the cluster, and waits until the answer is "safe"

Not here: rules of the production code.
"""
