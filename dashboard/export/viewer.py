"""speedscope (MIT, npm package of that name), with which the dashboard opens a raw profile.

No part of this repository and never fetched at run time: `workbench speedscope` gets one version of it by npm, checks
it against the hash below, and unpacks it beside the checkpoints.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from llama_workbench.cache import cache_directory, partial_folder

VERSION = "1.25.0"
INTEGRITY = "sha512-cpf9HWTZf1ijLXBJrk87Ve/54tnYx6rlf0gUThvn3ook6h63hLXVOQiMf44PT+XoV503cPfvfiT5gP5vojp6Ag=="
"""Of the package's archive, as npm's lock files write it."""

_NEEDED_BYTES = 8 * 2**20
_WANTED = ("package/dist/release/", "package/LICENSE")


class SpeedscopeError(Exception):
    """speedscope cannot be installed or shown: the message says why, and the fix or the file."""


def installed_folder() -> Path | None:
    """Where speedscope's pages lie (`index.html` and what it loads); None where it is not installed."""
    folder = _folder()
    return folder if (folder / "index.html").is_file() else None


def install(archive: Path | None = None) -> Path:
    """Fetch speedscope by npm, or take the `archive` that `npm pack` made, check it and unpack it; gives the folder.

    Does nothing where it is installed already. Raises SpeedscopeError, and CacheError where the disk refuses.
    """
    folder = _folder()
    if installed_folder():
        return folder
    with partial_folder(folder.parent, folder.name, needed_bytes=_NEEDED_BYTES) as partial:
        _unpack(archive or _packed(partial), partial / "app")
        (partial / "app").rename(folder)
    return folder


def _folder() -> Path:
    return cache_directory() / f"speedscope-{VERSION}"


def _packed(folder: Path) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        raise SpeedscopeError(
            f"npm is not installed: install it, or pass --archive, made elsewhere by `npm pack speedscope@{VERSION}`"
        )
    command = [npm, "pack", f"speedscope@{VERSION}", "--ignore-scripts", "--pack-destination", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    archive = folder / f"speedscope-{VERSION}.tgz"
    if done.returncode or not archive.is_file():
        said = " ".join(done.stderr.split())[-300:] or "no word of why"
        raise SpeedscopeError(f"npm pack speedscope@{VERSION} failed: {said}")
    return archive


def _unpack(archive: Path, folder: Path) -> None:
    """The static pages out of the archive, once its hash is right. Raises SpeedscopeError."""
    try:
        integrity = "sha512-" + base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    except OSError as error:
        raise SpeedscopeError(f"{archive}: {error.strerror}") from error
    if integrity != INTEGRITY:
        raise SpeedscopeError(
            f"{archive.name} is not speedscope {VERSION}: its hash is {integrity}, expected {INTEGRITY}"
        )
    folder.mkdir()
    with tarfile.open(archive) as packed:
        for member in packed:
            if member.isfile() and member.name.startswith(_WANTED) and (content := packed.extractfile(member)):
                (folder / PurePosixPath(member.name).name).write_bytes(content.read())


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


def document(folder: Path, profile: str, name: str) -> str:
    """speedscope's page from `folder`, its script and style sheet inlined, opening `profile` (folded stacks).

    Raises SpeedscopeError where the program is not in the form that is known here, OSError where a file is unreadable.
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
    tag = re.search(pattern, page)
    if tag is None:
        raise SpeedscopeError(f"{folder.name}/index.html names no {pattern.split('=')[0].strip('<')}")
    text = (folder / tag[1]).read_text(encoding="utf-8")

    def font(match: re.Match[str]) -> str:
        return f"url(data:font/woff2;base64,{base64.b64encode((folder / match[1]).read_bytes()).decode()})"

    text = re.sub(r'url\("?(?:\./)?([\w.-]+\.woff2)"?\)', font, text)
    return page[: tag.start()] + shown(text) + page[tag.end() :]


def _script(text: str) -> str:
    """A script element; nothing in its text can end it."""
    return "<script>" + re.sub(r"<(?=/script|!--)", r"\\x3C", text, flags=re.IGNORECASE) + "</script>"
