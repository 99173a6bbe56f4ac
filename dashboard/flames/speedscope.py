"""A raw profile in speedscope: one HTML document with the program and the profile in it, which asks nobody for more."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable
from pathlib import Path

# No source may be loaded from anywhere; inline scripts are the program and the few lines below.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:; worker-src blob:"
)

# The profile is handed over as if somebody dropped the file on the page, once there is a page.
_DROP = """\
(function () {
  const bytes = Uint8Array.from(atob(@PROFILE@), (letter) => letter.charCodeAt(0));
  (function wait() {
    const page = document.querySelector("body > div");
    if (!page || !page.querySelector("canvas")) return requestAnimationFrame(wait);
    const files = new DataTransfer();
    files.items.add(new File([bytes], @NAME@));
    const drop = new DragEvent("drop", { bubbles: true, cancelable: true, dataTransfer: files });
    page.firstElementChild.dispatchEvent(drop);
  })();
})();
"""


class RawProfileError(Exception):
    """The program in the folder is not in the form that is known here. The message names the file."""


def document(folder: Path, profile: str, name: str) -> str:
    """speedscope's page from `folder`, its script and style sheet inlined, opening `profile` (folded stacks).

    Raises RawProfileError, and OSError where a file cannot be read.
    """
    page = (folder / "index.html").read_text(encoding="utf-8")
    page = re.sub(r"<link[^>]*rel=\"icon\"[^>]*>", "", page)
    style = _inline(page, folder, r'<link rel="stylesheet" href="([\w.-]+)">', lambda text: f"<style>{text}</style>")
    # The name last: base64 has no "@", a name may have one.
    drop = _DROP.replace("@PROFILE@", json.dumps(base64.b64encode(profile.encode()).decode()))
    drop = _script(drop.replace("@NAME@", json.dumps(name).replace("<", r"\u003c")))
    # Folded stacks have no order in time: the view that is sorted by weight is the one to begin with.
    view = _script('location.hash = "view=left-heavy";')
    whole = _inline(style, folder, r'<script src="([\w.-]+)"></script>', lambda text: view + _script(text) + drop)
    policy = f'<meta http-equiv="Content-Security-Policy" content="{html.escape(_POLICY)}">'
    return whole.replace("<head>", f"<head>{policy}", 1)


def _inline(page: str, folder: Path, pattern: str, shown: Callable[[str], str]) -> str:
    found = re.search(pattern, page)
    if found is None:
        raise RawProfileError(f"{folder.name}/index.html names no {pattern.split('=')[0].strip('<')}")
    text = (folder / found[1]).read_text(encoding="utf-8")
    fonts = re.sub(r'url\("?(?:\./)?([\w.-]+\.woff2)"?\)', lambda match: _font(folder / match[1]), text)
    return page[: found.start()] + shown(fonts) + page[found.end() :]


def _font(file: Path) -> str:
    return f"url(data:font/woff2;base64,{base64.b64encode(file.read_bytes()).decode()})"


def _script(text: str) -> str:
    """A script element; nothing in its text can end it."""
    return "<script>" + re.sub(r"<(?=/script|!--)", r"\\x3C", text, flags=re.IGNORECASE) + "</script>"
