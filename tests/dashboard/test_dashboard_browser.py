"""The dashboard in a real browser: a Streamlit server, Chromium, and pictures kept under tests/artifacts/."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from PIL import Image, ImageColor

from llama_workbench.dashboard.export.svg import DARK
from llama_workbench.dashboard.export.viewer import installed_folder
from llama_workbench.dashboard.words import WORD_JOINER
from tests import runs
from tests.dashboard_browser import FLAGS, WAIT_MS, drawn, serving, settled
from tests.dashboard_pages import UNFOLDED
from tests.dashboard_runs import HOSTILE, MARKUP, add_broken, deface, folded, wide

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, ConsoleMessage, Page

pytest.importorskip("streamlit", reason="the dashboard's packages are not installed")

pytestmark = pytest.mark.covers("dashboard", "harness/report")

ARTIFACTS = Path(__file__).parents[1] / "artifacts"
LETTERS_AND_LINES = """() => [...document.querySelectorAll('[data-testid=stMain] p')]
  .filter((each) => each.innerText.length > 200 && !each.closest('.st-key-contents'))
  .map((each) => {
    const range = document.createRange();
    range.selectNodeContents(each);
    return [each.innerText.length, new Set([...range.getClientRects()].map((box) => Math.round(box.bottom / 8))).size];
  })"""
"""Of each long paragraph."""

WORDS_IN_SIGHT = """() => {
  const main = document.querySelector('[data-testid=stMain]');
  const walker = document.createTreeWalker(main, NodeFilter.SHOW_TEXT);
  const found = [];
  while (walker.nextNode()) {
    const range = document.createRange();
    range.selectNodeContents(walker.currentNode);
    const box = range.getBoundingClientRect();
    const icon = walker.currentNode.parentElement.closest('.icon, [data-testid=stIconMaterial]');
    const seen = walker.currentNode.parentElement.checkVisibility(); // not what lies in a closed expander
    if (!icon && seen && box.width && box.top < 900)
      found.push(...(walker.currentNode.data.match(/\\p{L}{2,}/gu) ?? []));
  }
  return found;
}"""
"""Words, and no numbers, above the fold."""


class Visit(Protocol):
    """What the fixture of that name gives."""

    def __call__(
        self, link: str = "", *, width: int = 1360, height: int = 900, scheme: Literal["light", "dark"] = "light"
    ) -> Page: ...


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server on a free port of this machine alone, started as people start it; gives its address."""
    results = tmp_path_factory.mktemp("results")
    newest = {"started": "2026-01-03T00:00:00+00:00"}
    run = runs.write_run(results / "runs" / "plain", manifest=newest)
    for seed, row in enumerate(run.records("profiles.json")):
        if row["path"]:
            (run.path / row["path"]).write_text(folded(seed), encoding="utf-8")
    deface(runs.write_run(results / "runs" / "hostile"))
    ratio = {"variant": "team005_proposal", "workloads": ["prefill-15m-t128"], "ratio": [2.0, 3.0]}
    others = [runs.a_claim(f"another-{number}", ratio, who=("TEAM-005",)) for number in range(3)]
    runs.write_run(results / "runs" / "many", claims=[*runs.CLAIMS, *others], rounds=12)
    large = runs.write_run(results / "runs" / "large", only=["prefill-15m-t128"], rounds=12)
    for row in large.records("profiles.json"):
        if row["path"]:
            (large.path / row["path"]).write_text(wide(), encoding="utf-8")
    add_broken(results / "runs")
    with serving(results) as address:
        yield address


@pytest.fixture(scope="module")
def context(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserContext]:
    """One browser for all tests, with a profile on the disk: the scripts of the page, megabytes, are fetched and
    compiled once."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        profile = tmp_path_factory.mktemp("profile")
        context = driver.chromium.launch_persistent_context(
            str(profile), executable_path=chromium, args=list(FLAGS), reduced_motion="reduce"
        )
        context.set_default_timeout(WAIT_MS)
        yield context
        context.close()


@pytest.fixture
def visit(context: BrowserContext, server: str) -> Iterator[Visit]:
    """`visit("?claim=…", width=420, scheme="dark")` opens a page and waits for it; any error on it fails the test."""
    troubles: list[str] = []
    pages: list[Page] = []

    def opened(
        link: str = "", *, width: int = 1360, height: int = 900, scheme: Literal["light", "dark"] = "light"
    ) -> Page:
        page = context.new_page()
        pages.append(page)
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme=scheme)
        page.on("console", lambda message: troubles.append(message.text) if _is_trouble(message) else None)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("requestfailed", lambda request: troubles.append(f"failed: {request.url}"))
        page.on("request", lambda request: troubles.extend(_elsewhere(request.url, server)))
        page.on("dialog", lambda dialog: troubles.append(f"a dialog opened: {dialog.message}"))
        page.goto(server + link)
        settled(page)
        return page

    yield opened
    for page in pages:
        page.close()
    assert troubles == []


def _is_trouble(message: ConsoleMessage) -> bool:
    """Whether the page reports an error of ours: Streamlit looks for its server under the page's own path first."""
    return message.type == "error" and "/_stcore/" not in message.location["url"]


def _elsewhere(url: str, server: str) -> list[str]:
    parts = urlsplit(url)
    away = parts.scheme not in {"data", "blob"} and parts.netloc != urlsplit(server).netloc
    return [f"asked another machine: {url}"] if away else []


def picture(page: Page, name: str) -> None:
    """Keep the whole page as a picture: Streamlit scrolls inside, so the window grows to what there is to see."""
    ARTIFACTS.mkdir(exist_ok=True)
    size = page.viewport_size
    assert size
    for _ in range(2):  # figures may wrap anew in a window without a scroll bar
        height = page.evaluate("document.querySelector('[data-testid=stMain]').scrollHeight")
        page.set_viewport_size({"width": size["width"], "height": height})
        page.wait_for_timeout(300)
    page.screenshot(path=str(ARTIFACTS / f"{name}.png"))
    page.set_viewport_size(size)


def tooltip(page: Page) -> str:
    """What the first row of the forest plot tells when the mouse comes to it."""
    return page.locator(".st-key-forest svg g > title").first.text_content() or ""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_answer_and_the_chosen_claim_are_seen(visit: Visit, scheme: Literal["light", "dark"]) -> None:
    page = visit("?claim=mask-caching-helps", scheme=scheme)
    card = page.locator(".strips .card", has_text="Is the rewrite (one file, one cache) 2-3x faster?")
    assert card.locator(".answer", has_text=re.compile(r"No.*1\.\d\dx")).is_visible()
    claim = page.locator(".strips details[open]")
    assert claim.locator("summary", has_text="mask caching helps").is_visible()
    assert claim.locator(".verdict", has_text="Depends").first.is_visible()
    assert claim.locator(".part .told a").first.is_visible() and claim.locator("summary .cell a").count() >= 2
    assert claim.locator("summary .interval line").count() == 2
    ink = claim.locator(".verdict").first.evaluate("each => getComputedStyle(each).color")
    assert ink == ("rgb(223, 156, 194)" if scheme == "dark" else "rgb(168, 68, 124)")
    icon = claim.locator(".icon").first.bounding_box()
    assert icon and icon["width"] < 25, "a picture, not its name"
    dark = page.evaluate("getComputedStyle(document.querySelector('.stApp')).backgroundColor") == "rgb(18, 23, 29)"
    assert dark == (scheme == "dark")
    picture(page, f"answer-{scheme}")


def test_the_answer_fits_the_first_screen(visit: Visit) -> None:
    page = visit(width=1400)
    cards, rows = page.locator(".strips .card").all(), page.locator(".strips .claim").all()
    assert len(cards) > 1 and len(rows) > 4
    for box in filter(None, (each.bounding_box() for each in [*cards, *rows[:5]])):
        assert box["y"] >= 0 and box["y"] + box["height"] < 900
    told = page.evaluate(WORDS_IN_SIGHT)
    assert len(told) <= 120, " ".join(told)


@pytest.mark.whole
def test_the_link_to_the_evidence_can_be_copied_and_opens_it(visit: Visit) -> None:
    page = visit("?claim=mask-caching-6-11&part=whole+prefill", scheme="dark")
    link = page.locator(".strips .part .told a", has_text="whole prefill")
    address = urlsplit(link.get_attribute("href") or "")
    assert address.path == "comparison"
    assert parse_qs(address.query) == {"run": ["plain"], "claim": ["mask-caching-6-11"], "part": ["whole prefill"]}
    link.click()
    page.locator(".st-key-show_rounds summary").click()
    page.wait_for_selector(".st-key-rounds .main-svg")
    assert "show_rounds=open" in page.url, "a link leads to what is unfolded"
    drawn(page, ".st-key-rounds .scatterlayer .point", 41)  # a dot a round, and where it ends
    assert "/comparison?" in page.url and "claim=mask-caching-6-11" in page.url
    settled(page)
    page.wait_for_selector(".flames .picture canvas[data-boxes]")
    drawn(page, '.flames canvas[aria-label^="Flamegraph of team006_"]', 2)
    picture(page, "claim-dark")


def test_the_first_page_fits_a_phone(visit: Visit) -> None:
    page = visit("?claim=mask-caching-6-11", width=420)
    assert page.evaluate("document.documentElement.scrollWidth") <= 420
    drawn = page.locator(".strips svg, .strips .told, .strips .axis span").all()
    boxes = [box for each in drawn if (box := each.bounding_box())]
    assert len(boxes) > 10
    assert all(box["x"] >= 0 and box["x"] + box["width"] <= 420 for box in boxes)
    picture(page, "answer-narrow")


@pytest.mark.whole
def test_nothing_hangs_over_the_edge_of_a_phone(visit: Visit) -> None:
    page = visit(f"comparison?claim=mask-caching-helps&{urlencode(UNFOLDED)}", width=420)
    page.wait_for_selector(".flames .picture canvas[data-boxes]")
    canvases = [box for canvas in page.locator(".flames canvas").all() if (box := canvas.bounding_box())]
    assert all(box["x"] >= 0 and box["x"] + box["width"] <= 420 for box in canvases)
    assert page.evaluate("document.documentElement.scrollWidth") <= 420
    drawn = (".st-key-forest", ".st-key-rounds", ".st-key-peak_transient_bytes")
    labels = page.locator(", ".join(f"{name} svg text" for name in drawn)).all()
    boxes = [box for label in labels if (box := label.bounding_box())]
    assert len(boxes) > 10
    assert all(box["x"] >= 0 and box["x"] + box["width"] <= 420 for box in boxes)
    picture(page, "claim-narrow")


def test_click_key_and_back_choose_a_claim_and_keep_the_link(visit: Visit) -> None:
    page = visit()
    page.locator(".strips summary", has_text="single file faster").click()
    page.wait_for_url("**claim=single-file-faster**")
    settled(page)  # a key pressed while the page is drawn anew goes nowhere
    summary = page.locator(".strips summary", has_text="mask caching helps")
    summary.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**claim=mask-caching-helps**")
    settled(page)
    assert page.locator(".strips details[open]", has_text="mask caching helps").count() == 1
    page.go_back()
    page.wait_for_url("**claim=single-file-faster**")
    page.locator(".strips details[open]", has_text="single file faster").wait_for()


@pytest.mark.long
def test_the_menu_keeps_what_was_chosen_and_the_address_shows_the_same_to_others(visit: Visit) -> None:
    chosen = {"run": ["plain"], "claim": ["mask-caching-6-11"], "part": ["whole prefill"]}
    page = visit("comparison?run=plain&claim=mask-caching-6-11&part=whole+prefill")
    page.locator('[data-testid="stTopNavLink"]', has_text="Answer").click()
    page.wait_for_url("**/?**")
    settled(page)
    assert parse_qs(urlsplit(page.url).query) == chosen
    page.locator('[data-testid="stTopNavLink"]', has_text="Comparison").click()
    page.wait_for_url("**/comparison?**")
    settled(page)
    assert parse_qs(urlsplit(page.url).query) == chosen
    told = '[data-testid="stMain"] h2'
    page.locator(told, has_text="mask caching 6 11").wait_for()
    page.locator('[data-testid="stPopover"] button').first.click()
    to_copy = page.locator('[data-testid="stPopoverBody"] code')
    to_copy.wait_for()
    assert to_copy.inner_text().strip() == page.url
    page.keyboard.press("Escape")
    address = urlsplit(page.url)
    other = visit(f"{address.path.lstrip('/')}?{address.query}")
    other.locator(told, has_text="mask caching 6 11").wait_for()
    assert other.title().endswith(": mask caching 6 11 (whole prefill) · Llama workbench"), "its verdict in front"
    assert other.locator(told).all_inner_texts() == page.locator(told).all_inner_texts()
    settled(page)
    for _ in range(2):  # Streamlit sometimes enters a page and its query one after the other
        if urlsplit(page.url).path == "/comparison":
            page.go_back()
            settled(page)
    assert urlsplit(page.url).path == "/"
    page.wait_for_function("location.search.includes('part=')")  # on a busy machine after the page itself
    assert parse_qs(urlsplit(page.url).query) == chosen


def test_a_card_opens_by_keyboard(visit: Visit) -> None:
    page = visit("comparison?run=plain&claim=mask-caching-helps&row=2", width=420)
    card = page.get_by_role("button", name="What do these names mean?")
    card.focus()
    page.keyboard.press("Enter")
    told = page.locator('[data-testid="stPopoverBody"]')
    told.get_by_text("workload prefill-7b-1layer-t128").wait_for()
    assert "One Cache" in told.inner_text() or "masks in each Attention" in told.inner_text()


def test_a_picture_is_saved_as_svg_and_png(visit: Visit) -> None:
    page = visit("comparison?run=plain&claim=mask-caching-helps", scheme="dark")
    forest, saved = page.locator(".st-key-forest .svg"), {}
    for kind in ("SVG", "PNG"):
        forest.hover()
        with page.expect_download() as download:
            forest.get_by_role("button", name=kind).click()
        saved[download.value.suggested_filename] = Path(download.value.path()).read_bytes()
    assert [*saved] == ["forest.svg", "forest.png"] and saved["forest.svg"].startswith(b"<svg")
    image, shown = (
        Image.open(io.BytesIO(saved["forest.png"])).convert("RGB"),
        forest.locator("svg").first.bounding_box(),
    )
    assert shown and image.size == (2 * round(shown["width"]), 2 * round(shown["height"]))
    assert image.getpixel((0, 0)) == ImageColor.getrgb(DARK.page) and len(image.getcolors(1 << 24) or ()) > 20


def test_a_page_for_a_talk_is_larger_and_shows_the_answer_alone(visit: Visit) -> None:
    page = visit("comparison?run=plain&claim=mask-caching-helps")
    title, menu = page.locator("#answer"), page.locator('[data-testid="stHeader"]')
    before = title.bounding_box()
    assert before and menu.is_visible() and page.locator(".st-key-run").is_visible()
    turn = page.locator('[data-testid="stPopoverBody"]').get_by_text("For a talk")
    page.locator('[data-testid="stPopover"] button').first.click()
    turn.click()
    menu.wait_for(state="hidden")
    after = title.bounding_box()
    assert after and after["height"] > 1.3 * before["height"] and not page.locator(".st-key-run").is_visible()
    assert parse_qs(urlsplit(page.url).query)["talk"] == ["on"]
    turn.click()
    menu.wait_for()
    assert "talk" not in parse_qs(urlsplit(page.url).query)


@pytest.mark.whole
def test_lines_have_about_75_letters(visit: Visit) -> None:
    page = visit(f"comparison?run=plain&claim=mask-caching-helps&{urlencode(UNFOLDED)}", width=1400)
    page.wait_for_selector(".flames .picture canvas[data-boxes]")
    lines = page.evaluate(LETTERS_AND_LINES)
    assert len(lines) > 3
    assert all(letters / count < 90 for letters, count in lines), lines


def test_names_that_are_markup_stay_text(visit: Visit) -> None:
    page = visit(f"comparison?run=hostile&claim=mask-caching-helps&{urlencode(UNFOLDED)}", height=3600)
    main = page.locator('[data-testid="stMain"]')
    text = main.inner_text().replace(WORD_JOINER, "")
    assert HOSTILE in text and MARKUP in text
    assert main.locator("script, img, .katex, svg a, svg script").count() == 0
    assert main.locator('a:not([href^="#"], [data-testid="stPageLink"] a)').count() == 0, "headings and our own links"
    bold = {found.replace(WORD_JOINER, "") for found in main.locator("p b, p strong").all_inner_texts()}
    assert bold <= {"Supported", "Refuted", "Depends", "Not measurable here", HOSTILE} | {
        "team006_before",
        "Peak transient, above the weights",
        "Parameters",
        "Kept: caches, copies of weights",
        "Not compared.",
        "What to do there:",
        "Significant:",
        "Relevant:",
        "Correct:",
        "Time of a call",
        "Peak memory of a call",
        "Memory kept after a call",
        "",  # of what is folded
    }
    assert main.locator("p em, p code, p del, p sup, p sub").count() == 0
    assert HOSTILE in tooltip(page)
    picture(page, "claim-hostile")


@pytest.mark.long
@pytest.mark.whole
def test_twenty_thousand_boxes_answer_to_mouse_keys_and_search(visit: Visit) -> None:
    from playwright.sync_api import expect

    page = visit("comparison?run=large&claim=mask-caching-helps&flame=difference", height=2400)
    canvas = page.locator(".flames .picture > canvas[data-boxes]")
    canvas.wait_for()
    boxes = int(canvas.get_attribute("data-boxes") or 0)
    assert 19_000 < boxes < 20_000
    canvas.hover(position={"x": 4, "y": 3 * 22 + 10})
    assert HOSTILE in (page.locator(".flames .tip").text_content() or "")
    canvas.click(position={"x": 4, "y": 3 * 22 + 10})
    assert canvas.get_attribute("data-zoomed") == HOSTILE
    assert int(canvas.get_attribute("data-boxes") or 0) == 43, "the enlarged one, what it calls, and its callers"
    told = page.locator(".flames .told")
    assert "variants/v1.py" in (told.text_content() or "")
    page.keyboard.press("ArrowDown")
    assert "variants/v2.py" in (told.text_content() or "")
    page.keyboard.press("Escape")
    assert canvas.get_attribute("data-zoomed") == "" and int(canvas.get_attribute("data-boxes") or 0) == boxes
    canvas.hover(position={"x": 300, "y": 3 * 22 + 10})
    page.mouse.wheel(0, -900)
    expect(canvas).not_to_have_attribute("data-boxes", str(boxes))
    assert int(canvas.get_attribute("data-boxes") or 0) < boxes / 2, "the wheel zooms about the pointer"
    page.keyboard.press("Escape")
    assert int(canvas.get_attribute("data-boxes") or 0) == boxes, "all of it again"
    for key in ("ArrowUp", "ArrowUp", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    assert canvas.get_attribute("data-zoomed") == "f1"
    page.locator(".flames input").fill("v40.py")
    page.locator(".flames .found", has_text="480 boxes: team006_before 10 ms, team006_after").wait_for()
    page.locator(".flames input").press("Enter")
    page.wait_for_url("**find=v40.py**")
    assert page.locator(".flames script, .flames img").count() == 0


@pytest.mark.long
@pytest.mark.skipif(installed_folder() is None, reason="speedscope is not installed: workbench speedscope")
@pytest.mark.whole
def test_the_raw_profile_opens_in_speedscope_and_nothing_is_fetched(visit: Visit) -> None:
    page = visit("comparison?claim=mask-caching-helps&raw=team006_after")
    inside = page.frame_locator("iframe")
    inside.locator("text=prefill-15m-t128-team006_after.folded").wait_for()
    inside.locator("text=Left Heavy").wait_for()
    page.locator("iframe").scroll_into_view_if_needed()
    picture(page, "raw-profile")
