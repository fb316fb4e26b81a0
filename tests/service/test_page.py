"""The page in a real browser."""

from __future__ import annotations

import pytest

from tests.service.browser import CONTRAST, needs_browser, search, services
from tests.service.conftest import WordSearcher
from tests.service.test_api import QUERY
from tests.service.test_limits import KEY

WHY = "matches the negated operand 'Sumatra' more than 98% of the documents that fit best"
pytestmark = needs_browser
FOCUSED = """() => {
  const at = document.activeElement;
  return at.id || `${at.closest(".list").id} ${at.innerText}`;
}"""


@pytest.fixture(scope="module")
def running():
    """Start services of the word-overlap searcher."""
    with services() as start:
        yield lambda **settings: start(WordSearcher(), **settings)


@pytest.fixture(scope="module")
def address(running) -> str:
    return running()


def test_a_search_shows_both_lists_and_the_parsed_query(tab, address):
    page = tab(address)
    search(page, QUERY)
    assert page.inner_text("#about").startswith("6 documents, searched with")
    assert "q=moths+of+Borneo" in page.url
    # One list until the other is asked for.
    assert page.locator("#plain").is_hidden()
    page.check("#compare")
    page.wait_for_selector("#plain .hit")
    assert "compare=true" in page.url
    # In one line, and opened: words by operand, the operators above them, the tree below.
    assert page.locator("#parse .words").is_hidden()
    reading = page.inner_text("#reading").lower().split()
    assert reading == ["a", "moths", "of", "borneo", "not", "b", "sumatra"]
    page.click("#parse summary")
    words = page.locator("#parse .words .word")
    assert words.locator(".text").all_inner_texts() == QUERY.split()
    lanes = words.evaluate_all(
        "all => all.map(word => [...word.querySelectorAll('.lane')]"
        ".map(lane => lane.classList.contains('in') ? 1 : 0).join(''))"
    )
    assert lanes == ["10", "10", "10", "00", "00", "01"]
    tree = page.inner_text("#parse .tree").lower().split("\n")
    assert [line for line in tree if line] == ["and", "a moths of borneo", "not", "b sumatra"]
    # The plain encoder is drawn to the excluded place; six documents leave nothing out.
    first = page.locator("#plain .hit").first
    assert first.locator(".title").inner_text() == "Sunda moth"
    assert "with and, or, not: 2nd" in first.inner_text()
    first.locator(".why summary").click()
    assert f"doubtful because it {WHY}" in first.inner_text()
    assert "may be about Sumatra" in page.locator("#boolean .hit").nth(2).inner_text()
    best = page.locator("#boolean .hit").first
    assert "Borneo moth" in best.inner_text()
    assert best.locator(".meta").inner_text().split() == ["place", "Borneo"]
    assert best.locator(".operand-ranks").is_hidden()
    best.locator(".why summary").click()
    assert best.locator(".operand-rank").all_inner_texts()[0].split() == ["A", "3rd"]


def test_a_document_that_the_boolean_model_does_not_show_is_not_in_its_list(tab, address):
    page = tab(f"{address}?q=moths+of+Borneo+but+not+Sumatra&k=1&compare=true")
    page.wait_for_selector("#plain .hit")
    [only] = page.locator("#plain .hit").all_inner_texts()
    assert "with and, or, not: not in the first 1" in only
    [only] = page.locator("#boolean .hit").all_inner_texts()
    assert "plain search: not in the first 1" in only


def test_two_lists_that_are_the_same_are_one(tab, address):
    page = tab(f"{address}?q=moths+of+Borneo&compare=true")
    page.wait_for_selector("#boolean .hit")
    assert "the same list" in page.inner_text("#same")
    assert page.locator("#plain").is_hidden()


def test_scripts_in_documents_are_never_run(tab, address):
    page = tab(address)
    search(page, "beetles of Java")
    title = page.locator("#boolean .title").first
    assert title.inner_text() == "<script>alert(1)</script>"
    title.click()
    panel = page.locator("#boolean .panel").first
    panel.locator("dt").wait_for()
    assert page.locator("#boolean .hit").first.locator(".meta").is_hidden()
    assert '<img src=x onerror="document.title=1">' in panel.inner_text()
    assert panel.locator("dt").inner_text() == "<b>place</b>"
    assert page.locator("#results script, #results img, #results i").count() == 0
    search(page, '<img src=x onerror="document.title=2"> but not <b>x</b>')
    assert page.locator("#parse img, #parse .words b").count() == 0
    assert page.title().startswith("<img")


def test_what_is_typed_while_the_page_loads_stays(tab, address):
    page = tab(address)
    waiting = []
    page.route("**/about", lambda route: waiting.append(route))
    page.reload()
    page.fill("#query", "beetles of Java")
    waiting[0].continue_()
    page.wait_for_function("() => document.querySelector('#about').innerText.startsWith('6')")
    assert page.input_value("#query") == "beetles of Java"


def test_keyboard_navigation(tab, address):
    page = tab(f"{address}?compare=true")
    page.wait_for_function("() => document.querySelector('#about').innerText.startsWith('6')")
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
    page.keyboard.press("ArrowRight")
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
    search(page, QUERY)
    page.check("#compare")
    page.wait_for_selector("[data-list]")
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
    assert "plain search (no and, or, not found)" in page.inner_text("#parse")
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
            "#about", "#query", "#search button", ".snippet", ".why",
            ".tag.not", ".letter", ".hint",
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
    page.wait_for_function("() => document.querySelector('#about').innerText.startsWith('6')")
    search(page, QUERY)
    page.wait_for_selector("#boolean .hit")
    page.locator("#boolean .title").first.click()
    page.wait_for_selector("#boolean .whole")
    assert KEY not in page.url
