"""The page in a real browser."""

from __future__ import annotations

import os
import shutil
import threading
from importlib.util import find_spec

import pytest

from boolattn import BoolAttnConfig
from boolattn.embedding.models import minilm_folder
from boolattn.encoder import build_towers
from boolattn.service.app import create_app
from boolattn.service.server import Server, address_of, listen
from boolattn.service.settings import ServiceSettings
from tests.service.conftest import WordSearcher
from tests.service.test_api import JUDGED, QUERY
from tests.service.test_limits import KEY

WHY = "matches the negated operand 'Sumatra' more than 98% of the documents that fit best"
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")

pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="no Chromium here; apt-get install chromium"),
    pytest.mark.skipif(find_spec("playwright") is None, reason="pip install 'boolattn[browser]'"),
]
# No network but the page; root cannot use the sandbox.
QUIET = [
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
FOCUSED = """() => {
  const at = document.activeElement;
  return at.id || `${at.closest(".list").id} ${at.innerText}`;
}"""
#: Contrast of an element's text to what is painted behind it, as WCAG counts it.
CONTRAST = """selector => {
  const linear = v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const light = colour => {
    const [r, g, b] = colour.match(/[\\d.]+/g).map(v => linear(v / 255));
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const element = document.querySelector(selector);
  let under = element;
  while (/rgba.*, 0\\)/.test(getComputedStyle(under).backgroundColor)) under = under.parentElement;
  const a = light(getComputedStyle(element).color);
  const b = light(getComputedStyle(under).backgroundColor);
  return (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
}"""


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    options = [*QUIET, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=BROWSER, args=options)
        yield started
        started.close()


@pytest.fixture(scope="module")
def running():
    """Start a service in a thread: the word-overlap searcher, and an encoder with BoolAttn."""
    towers = build_towers(minilm_folder(), BoolAttnConfig(gate="lexicon", rank=16))
    stops = []

    def start(**settings) -> str:
        searcher = WordSearcher()
        searcher.retriever.towers = towers
        taken = listen("127.0.0.1", 0)
        is_up = threading.Event()
        app = create_app(searcher, None, ServiceSettings(**settings), JUDGED)
        server = Server(app, timeout=5, ready=is_up.set)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [taken]})
        thread.start()
        stops.append((server, thread, taken))
        assert is_up.wait(30)
        return address_of(taken)

    yield start
    for server, thread, taken in stops:
        server.should_exit = True
        thread.join(20)
        taken.close()


@pytest.fixture(scope="module")
def address(running) -> str:
    return running()


@pytest.fixture
def tab(browser):
    """Open tabs; a script error or a foreign request fails the test."""
    errors: list[str] = []
    opened = []

    def open_tab(url: str, **options):
        page = browser.new_page(**({"viewport": {"width": 1280, "height": 900}} | options))
        page.set_default_timeout(10_000)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on(
            "console",
            lambda said: errors.append(said.text) if "Content Security" in said.text else None,
        )
        page.on(
            "request",
            lambda asked: (
                None if asked.url.startswith("http://127.0.0.1") else errors.append(asked.url)
            ),
        )
        page.goto(url)
        opened.append(page)
        return page

    yield open_tab
    for page in opened:
        page.close()
    assert errors == []


def search(page, query):
    page.fill("#query", query)
    page.press("#query", "Enter")
    page.wait_for_function(
        "query => document.title.startsWith(query) && !document.body.hasAttribute('aria-busy')",
        arg=query,
    )


def test_a_search_shows_both_lists_and_the_parsed_query(tab, address):
    page = tab(address)
    page.wait_for_selector("#examples button")
    assert page.inner_text("#about").startswith("6 documents, searched with")
    page.click("#examples button")
    page.wait_for_selector("#boolean .hit")
    assert page.input_value("#query") == QUERY
    assert "q=moths+of+Borneo" in page.url
    # Words by operand, the operators above them, the tree below.
    words = page.locator("#parse .words .word")
    assert words.locator(".text").all_inner_texts() == QUERY.split()
    lanes = words.evaluate_all(
        "all => all.map(word => [...word.querySelectorAll('.lane')]"
        ".map(lane => lane.classList.contains('in') ? 1 : 0).join(''))"
    )
    assert lanes == ["10", "10", "10", "00", "00", "01"]
    tree = page.inner_text("#parse .tree").lower().split("\n")
    assert [line for line in tree if line] == ["and", "a moths of borneo", "not", "b sumatra"]
    # Cue, scope and bias of the encoder, drawn and as a table.
    rows = page.locator("#parse table tr").all_inner_texts()
    values = {row.split()[0]: row.split()[1:] for row in rows}
    explained = page.request.get(f"{address}explain?q={QUERY}").json()
    assert explained["gate"]["not"]
    for word in explained["words"]:
        assert float(values[word["text"]][0]) == pytest.approx(word["cue"]["not"], abs=0.006)
    assert page.locator("#parse .strip .column").count() == 7
    # The plain encoder is drawn to the excluded place; six documents leave nothing out.
    first = page.locator("#plain .hit").first
    assert first.locator(".title").inner_text() == "Sunda moth"
    assert "violates the query" in first.inner_text()
    assert f"doubtful because it {WHY}" in first.inner_text()
    assert "Boolean model: 2nd" in first.inner_text()
    assert (
        "doubtful because it matches the negated operand 'Sumatra'"
        in page.locator("#boolean .hit").nth(2).inner_text()
    )
    best = page.locator("#boolean .hit").first
    assert "Borneo moth" in best.inner_text()
    assert "answers the query" in best.inner_text()
    assert best.locator(".operand-rank").all_inner_texts()[0].split() == ["A", "3rd"]


def test_a_document_that_the_boolean_model_does_not_show_is_ranked_lower(tab, address):
    page = tab(f"{address}?q=moths+of+Borneo+but+not+Sumatra&k=1")
    page.wait_for_selector("#boolean .hit")
    [only] = page.locator("#plain .hit").all_inner_texts()
    assert f"ranked lower because it {WHY}" in only
    assert "Boolean model: 2nd" in only
    [only] = page.locator("#boolean .hit").all_inner_texts()
    assert "kept · plain encoder: 2nd" in only


def test_scripts_in_documents_are_never_run(tab, address):
    page = tab(address)
    search(page, "beetles of Java")
    title = page.locator("#boolean .title").first
    assert title.inner_text() == "<script>alert(1)</script>"
    title.click()
    panel = page.locator("#boolean .panel").first
    panel.locator("dt").wait_for()
    assert '<img src=x onerror="document.title=1">' in panel.inner_text()
    assert panel.locator("dt").inner_text() == "<b>place</b>"
    assert page.locator("#results script, #results img, #results i").count() == 0
    search(page, '<img src=x onerror="document.title=2"> but not <b>x</b>')
    assert page.locator("#parse img, #parse .words b").count() == 0
    assert page.title().startswith("<img")


def test_keyboard_navigation(tab, address):
    page = tab(address)
    page.wait_for_selector("#examples button")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("/")
    assert page.evaluate(FOCUSED) == "query"
    page.keyboard.type(QUERY)
    page.keyboard.press("Enter")
    page.wait_for_selector("#boolean .hit")
    page.keyboard.press("ArrowDown")
    assert page.evaluate(FOCUSED) == "boolean Borneo moth"
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    page.keyboard.press("ArrowDown")
    assert page.evaluate(FOCUSED) == "boolean Sunda moth"
    page.keyboard.press("ArrowLeft")
    assert page.evaluate(FOCUSED) == "plain Borneo moth"
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    page.wait_for_selector("#plain .panel .whole")
    assert "Borneo and Sumatra" in page.inner_text("#plain .panel .whole")
    page.keyboard.press("Escape")
    assert page.locator("#plain .panel .whole").is_hidden()
    assert page.evaluate(FOCUSED) == "plain Sunda moth"
    page.keyboard.press("Escape")
    assert page.evaluate(FOCUSED) == "query"
    page.keyboard.press("Escape")
    assert page.input_value("#query") == ""
    page.keyboard.type("a/b")
    assert page.input_value("#query") == "a/b"


def test_a_phone_needs_no_horizontal_scrolling(tab, address):
    page = tab(address, viewport={"width": 320, "height": 640}, has_touch=True)
    for query in (QUERY, "w" * 300, " OR ".join(f"moth{n}" for n in range(40))):
        search(page, query)
        page.wait_for_selector("#boolean .hit")
        inside, outside = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert inside <= outside
    # One list at a time, and a switch between them.
    assert page.locator("#plain").is_hidden()
    page.locator('[data-list="plain"]').tap()
    assert page.locator("#plain .hit").first.is_visible()
    assert page.locator("#boolean").is_hidden()


def test_a_syntax_error_is_shown_with_a_caret(tab, address):
    page = tab(address)
    search(page, "moths AND (Borneo")
    page.wait_for_selector("#error pre")
    assert "column 11: this parenthesis is never closed" in page.inner_text("#error")
    assert page.inner_text("#error pre") == "moths AND (Borneo\n          ^"
    assert page.locator("#results").is_hidden()
    search(page, QUERY)
    page.wait_for_selector("#boolean .hit")
    assert page.locator("#error").is_hidden()


def test_operand_spans_count_code_points(tab, address):
    page = tab(address)
    search(page, "🦋🦋 蛾 but not Борнео")
    page.wait_for_selector("#boolean .hit")
    lanes = page.locator("#parse .word").evaluate_all(
        "all => all.map(word => [...word.querySelectorAll('.lane')]"
        ".map(lane => lane.classList.contains('in') ? 1 : 0).join(''))"
    )
    assert lanes == ["10", "10", "00", "00", "01"]


def test_the_url_and_the_history_restore_a_search(tab, address):
    page = tab(f"{address}?q=moths+of+Borneo&k=2")
    page.wait_for_selector("#boolean .hit")
    assert page.locator("#boolean .hit").count() == 2
    assert "One operand" in page.inner_text("#parse")
    search(page, QUERY)
    page.go_back()
    page.wait_for_function("document.title.startsWith('moths of Borneo ·')")
    assert page.input_value("#query") == "moths of Borneo"


def test_light_and_dark_themes_have_enough_contrast(tab, address):
    backs = []
    for scheme in ("light", "dark"):
        page = tab(f"{address}?q={QUERY.replace(' ', '+')}", color_scheme=scheme)
        page.wait_for_selector("#boolean .hit")
        backs.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        for selector in (
            "#about", "#query", "#search button", ".snippet", ".why", ".badge.excluded",
            ".badge.answers", ".badge.partial", ".badge.other", ".tag.not", ".letter", ".hint",
            ".lane.in", ".operand-rank.c1 .letter", "#status",
        ):  # fmt: skip
            assert page.evaluate(CONTRAST, selector) >= 4.5, (scheme, selector)
    assert backs[0] != backs[1]


def test_the_key_is_asked_for_and_kept_for_the_tab(tab, running):
    page = tab(running(api_key=KEY))
    page.wait_for_selector("#key:not([hidden])")
    page.fill("#key-value", "not-the-right-key")
    page.keyboard.press("Enter")
    page.wait_for_selector("#error:not([hidden])")
    page.fill("#key-value", KEY)
    page.keyboard.press("Enter")
    page.wait_for_selector("#examples button")
    search(page, QUERY)
    page.wait_for_selector("#boolean .hit")
    page.locator("#boolean .title").first.click()
    page.wait_for_selector("#boolean .whole")
    assert KEY not in page.url
