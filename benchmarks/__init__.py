"""Measurements of restow. They print ratios taken in one run; no test depends on them."""
