"""A measuring process of a suite: a fresh pytest in the checkout of one side, which runs one test at a time on request.

The parent (`driver`) sends commands and reads answers as `worker.channel` says. pytest is imported only once the
checkout's folders are first on the path, for a suite may be about something that pytest itself imports. What could not
be collected at all is in the log.
"""

from __future__ import annotations

import os
import sys
import time

from ..worker.channel import Channel


def main() -> None:
    """Serve until the parent has no more commands."""
    channel = Channel()
    hello = channel.receive()
    if hello is None:
        return
    os.chdir(hello["folder"])
    sys.path[:0] = hello["paths"]
    os.environ["PYTHONPATH"] = os.pathsep.join([*hello["paths"], *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    sys.argv[:] = ["pytest", *hello["words"]]
    channel.answer({"ok": time.monotonic()})
    from .measuring import measure

    code = measure(channel, hello["words"])
    while channel.receive() is not None:  # pytest ended before there was anything to run
        channel.answer({"ok": {"ended": code}})


if __name__ == "__main__":
    main()
