"""Outside variants for the tests: a good one, an identical copy, a slower one, and all the ways to misbehave."""

import os
import time
from contextlib import suppress

import torch
from torch.nn import functional as F

from llama_workbench import variants
from llama_workbench.variants import fast


class _Around:
    """A model whose forward is followed by something else."""

    def __init__(self, model, after):
        self.model, self.after, self.calls = model, after, 0
        self.reset = model.reset

    def forward(self, tokens, position):
        logits = self.model.forward(tokens, position)
        self.calls += 1
        return self.after(logits, self.calls)


def _fast(config, weights, max_length, after):
    return _Around(variants.get("fast").build(config, weights, max_length=max_length), after)


def good(config, weights, *, max_length):
    """The fast variant, from outside."""
    return variants.get("fast").build(config, weights, max_length=max_length)


def slow(config, weights, *, max_length):
    """Right, but with far more work."""
    ballast = torch.randn(256, 256)

    def after(logits, calls):
        F.linear(ballast, ballast)
        return logits

    return _fast(config, weights, max_length, after)


def wrong(config, weights, *, max_length):
    """Logits off by a constant on one token."""

    def after(logits, calls):
        logits = logits.clone()
        logits[:, 3] += 0.5
        return logits

    return _fast(config, weights, max_length, after)


def nan(config, weights, *, max_length):
    """NaN: fast and wrong."""
    return _fast(config, weights, max_length, lambda logits, calls: logits * float("nan"))


def raises(config, weights, *, max_length):
    """Cannot be built."""
    raise RuntimeError("no such kernel here")


def hangs(config, weights, *, max_length):
    """Never answers."""

    def after(logits, calls):
        time.sleep(3600)

    return _fast(config, weights, max_length, after)


def kills(config, weights, *, max_length):
    """Takes its process along."""

    def after(logits, calls):
        os.kill(os.getpid(), 9)

    return _fast(config, weights, max_length, after)


_GATED = False


def _is_bad_process(max_length):
    """In one process of three, by what it draws, but in none that was gated: the small gate's models are this long."""
    global _GATED
    _GATED = _GATED or max_length == 48
    return not _GATED and int(os.environ["PYTHONHASHSEED"]) % 3 == 0


def kills_later(config, weights, *, max_length):
    """Passes its gates, then takes its process along in some of them."""

    def after(logits, calls):
        if bad:
            os._exit(7)
        return logits

    bad = _is_bad_process(max_length)
    return _fast(config, weights, max_length, after)


_CALLS = 0


def _in_blocks(config, weights, max_length, do):
    """Passes its gates, then does something in the process of a block, which is another one than the gates'."""

    def after(logits, calls):
        if os.getpid() != _GATED_IN:
            do()
        return logits

    return _fast(config, weights, max_length, after)


_GATED_IN = os.getpid()


def hangs_in_blocks(config, weights, *, max_length):
    """Never answers."""
    return _in_blocks(config, weights, max_length, lambda: time.sleep(3600))


def fails_in_blocks(config, weights, *, max_length):
    """Raises."""
    return _in_blocks(config, weights, max_length, lambda: [].pop())


def kills_in_blocks(config, weights, *, max_length):
    """Takes its process along."""
    return _in_blocks(config, weights, max_length, lambda: os._exit(7))


def noisy_in_blocks(config, weights, *, max_length):
    """Writes into every pipe and file that is open."""

    def shout():
        for number in range(3, 400):
            with suppress(OSError):
                os.write(number, b"what is this?")

    return _in_blocks(config, weights, max_length, shout)


def wrong_in_blocks(config, weights, *, max_length):
    """Answers wrongly."""
    right = good(config, weights, max_length=max_length)
    return _Around(right, lambda logits, calls: logits + (os.getpid() != _GATED_IN))


def wrong_later(config, weights, *, max_length):
    """Passes its gates, then answers wrongly in some processes."""

    def after(logits, calls):
        return logits + 1 if bad else logits

    bad = _is_bad_process(max_length)
    return _fast(config, weights, max_length, after)


def threads(config, weights, *, max_length):
    """Changes a setting of the whole process."""
    torch.set_num_threads(2)
    return variants.get("fast").build(config, weights, max_length=max_length)


def other_token_later(config, weights, *, max_length):
    """Passes its gates, then prefers another token."""

    def after(logits, calls):
        global _CALLS
        _CALLS += 1
        if _CALLS > 200:
            logits = logits.clone()
            logits[:, 3] += 100
        return logits

    return _fast(config, weights, max_length, after)


def shifted_later(config, weights, *, max_length):
    """Passes its gates, then gives other logits but the same most likely tokens."""

    def after(logits, calls):
        global _CALLS
        _CALLS += 1
        return logits + 1 if _CALLS > 200 else logits

    return _fast(config, weights, max_length, after)


def stale_later(config, weights, *, max_length):
    """Passes its gates, then spoils the keys of position 12: no token of a generation up to there shows it."""
    model = fast.build(config, weights, max_length=max_length)

    def after(logits, calls):
        global _CALLS
        _CALLS += 1
        if _CALLS > 200:
            for keys, _ in model.kvs:
                keys[:, :, 12] = 9.0
        return logits

    return _Around(model, after)


_builds: list[int] = []


def tires(config, weights, *, max_length):
    """Fails after more models than the gates ask for; where there were no gates, after fewer than a pass does."""
    _builds.append(1)
    _is_bad_process(max_length)
    if len(_builds) > (8 if _GATED else 3):
        raise RuntimeError("tired")
    return good(config, weights, max_length=max_length)


no_function = "of this name"
