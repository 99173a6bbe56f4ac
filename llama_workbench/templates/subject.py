"""Two functions with the same answers: is the new one faster?

    pytest FILE.py                 do they agree? (no measuring: it runs with your other tests)
    pytest --benchmark FILE.py     and which is faster, in fresh processes, with an interval?

The same without a test, with a table and profiles:

    pytest --benchmark --compare FILE.py:before FILE.py:after --call FILE.py:payload --profile
    workbench compare-revisions main . FILE.py:after --call FILE.py:payload
"""

import random


def payload(seed):
    """What both are called with: a tuple is one argument each, anything else is one argument.

    It is called with another seed each time, so that remembering an answer does not help. Making it is not timed.
    """
    words = ["one", "two", "three", "four"]
    return [random.Random(seed).choice(words) for _ in range(1000)]


def before(words):
    """The code as it is."""
    kept = []
    for word in words:
        if word not in kept:
            kept.append(word)
    return sorted(kept)


def after(words):
    """The code as it might be. Its answers must be those of `before`: tensors and arrays may differ by rounding."""
    return sorted(set(words))


def test_after_is_faster(versus):
    """`versus` takes the new function first. With --benchmark the test fails unless 10 % faster is proven."""
    versus(after, before, payload=payload, faster_than=1.1)
    # between=(0.98, 1.02)      in place of faster_than: proven to be as fast, within 2 %
    # check=almost              a function of yours, almost(got, expected), in place of ==
    # budget=60                 seconds, where 30 are not enough
