"""Commands in, answers out: the pipe as the process sees it that the parent started (see `processes`).

The parent sends one JSON object a line on standard input, each with a token that nobody can guess. Only a line that
begins with this token counts as an answer, so a variant that writes into the pipe is detected and does no harm. What
code prints goes to standard error. Everything that an answer needs is bound here before foreign code is imported.

Importing this module does not import torch.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import sys
import sysconfig
import time
import traceback
from collections.abc import Callable, Mapping
from json import dumps, loads
from os import write
from typing import Any

from llama_workbench import ROOT

from ..calls.command import CommandFailed

_PR_SET_CHILD_SUBREAPER, _PR_SET_PTRACER, _ANY = 36, 0x59616D61, -1

CUT_OFF = 75  # exit code of a process whose pipe to the parent was closed by the code that ran in it

INTRUDES = "writes into the pipe by which its process answers"
"""Why code is excluded whose output comes through that pipe."""


class Channel:
    """The pipes to the parent. Making one readies the process: Ctrl-C is for the parent, and whatever a variant starts
    is seen as a child, also when its own parent ends."""

    def __init__(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if sys.platform == "linux":
            libc = ctypes.CDLL(None, use_errno=True)
            libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            libc.prctl(_PR_SET_PTRACER, ctypes.c_ulong(_ANY), 0, 0, 0)  # lets py-spy attach under Yama
        self._commands = os.fdopen(os.dup(0), encoding="utf-8")
        # A number that code which counts through file numbers does not reach soon.
        self._answers = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 200)
        self._pipe = os.fstat(self._answers)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        os.dup2(2, 1)
        self._token = ""

    def receive(self) -> dict[str, Any] | None:
        """The next command; None when there are no more."""
        line = self._commands.readline()
        if not line:
            return None
        command: dict[str, Any] = loads(line)
        self._token = command.pop("token")
        return command

    def is_open(self) -> bool:
        """Whether answers still lead to the pipe that was given."""
        try:
            return os.path.samestat(os.fstat(self._answers), self._pipe)
        except OSError:
            return False

    def answer(self, value: Mapping[str, Any]) -> None:
        """Answer the command that was received last."""
        # A line of its own, whatever somebody wrote before.
        rest = f"\n{self._token} {dumps(value)}\n".encode()
        while rest:
            rest = rest[write(self._answers, rest) :]


def serve(verbs_for: Callable[[Channel, dict[str, Any]], Mapping[str, Callable[..., Any]]]) -> None:
    """Answer commands by the function of their verb until standard input ends; what one raises is an answer too.
    `verbs_for` gets the parent's first message, and makes all ready."""
    channel = Channel()
    hello = channel.receive()
    if hello is None:
        return
    verbs = verbs_for(channel, hello)
    channel.answer({"ok": time.monotonic()})  # the parent's clock, too
    while (command := channel.receive()) is not None:
        verb = command.pop("do")
        try:
            channel.answer({"ok": verbs[verb](**command)})
        except Exception as error:
            traceback.print_exc()
            channel.answer({"error": in_one_line(error, 500)})


def in_one_line(error: BaseException, limit: int = 300) -> str:
    """An exception for people: its type and the first `limit` characters of its text, without line breaks."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:limit]}"


KNOWN = (*(f"{ROOT / name}/" for name in ("variants", "harness", "datasets")), f"{sysconfig.get_path('stdlib')}/")
"""Folders of code that no author of a variant or function wrote."""


def raised_by(error: BaseException) -> str:
    """What code from outside raised, and the last line of its author's on the way there: "raises ValueError: no room
    (mine.py, line 7)"; of a command how it ended. The traceback goes to the log."""
    traceback.print_exception(type(error), error, error.__traceback__)
    if isinstance(error, CommandFailed):
        return str(error)
    passed = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_known(frame.filename)]
    where = f" ({os.path.basename(passed[-1].filename)}, line {passed[-1].lineno})" if passed else ""
    return f"raises {in_one_line(error)}{where}"


def _is_known(file: str) -> bool:
    """Whether a file is the workbench's, Python's or an installed library's. One's own may lie in the checkout."""
    path = os.path.realpath(file)
    return "/site-packages/" in path or file.startswith("<") or path.startswith(KNOWN)
