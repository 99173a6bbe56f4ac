"""Tells callgrind to begin or to end collecting, from inside of a program that has no compiled code of ours.

valgrind takes a request from the program that it runs where it sees a few instructions that otherwise do nothing; the
header `valgrind/valgrind.h` has them ("client requests"), `valgrind/callgrind.h` has the numbers.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
from collections.abc import Callable

TOGGLE_COLLECT = (ord("C") << 24) + (ord("T") << 16) + 2
RUNNING_ON_VALGRIND = 0x1001

CODE = {
    "x86_64": bytes.fromhex(
        "4889f8"  # mov rax, rdi: where the request and its five arguments lie
        "31d2"  # xor edx, edx: the answer where nobody takes the request
        "48c1c703 48c1c70d 48c1c73d 48c1c733"  # rol rdi, 3, 13, 61, 51: 128 places, and so none
        "4887db"  # xchg rbx, rbx: take it
        "4889d0 c3"  # mov rax, rdx; ret
    )
}
"""By machine: a function of the address of a request, whose answer is valgrind's."""


def toggle_of_valgrind() -> Callable[[], object] | None:
    """What toggles collecting when it is called; None where this machine has no code for it, forbids it, or the
    program does not run under valgrind."""
    code = CODE.get(platform.machine())
    if code is None:
        return None
    try:
        page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except OSError:
        return None
    page.write(code)
    start = ctypes.addressof(ctypes.c_char.from_buffer(page))
    ask = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)(start)
    running, toggle = ((ctypes.c_uint64 * 6)(number) for number in (RUNNING_ON_VALGRIND, TOGGLE_COLLECT))
    if not ask(ctypes.addressof(running)):
        return None
    where = ctypes.addressof(toggle)
    kept = page, toggle  # for as long as it can be called

    def toggle_collecting() -> object:
        return ask(where) and kept

    return toggle_collecting
