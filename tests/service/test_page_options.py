"""Filters, switches, pages and links of the page, in a real browser over a real index."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest

from boolattn.data.records import Document
from boolattn.search import Searcher
from tests.search import word_model
from tests.service.browser import CONTRAST, needs_browser, search, services

pytestmark = needs_browser
QUERY = "moths NOT Sumatra"
#: Controls and landmarks for which a screen reader has no name.
UNNAMED = """() => [...document.querySelectorAll(
    "input, select, button, summary, nav, form, section")]
  .filter(one => one.checkVisibility())
  .filter(one => !(one.ariaLabel || one.innerText || one.labels?.length
    || document.getElementById(one.getAttribute("aria-labelledby"))))
  .map(one => one.outerHTML)"""


@pytest.fixture(scope="module")
def searcher(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page") / "index"
    evil = Document(
        id="evil",
        title="<img src=x onerror=alert(1)>",
        text="old beetles <b>Java</b> 🦋 Java",
        metadata={"place": "<i>Java</i>", "group": "beetles"},
    )
    twin = Document(id="twin", text="old beetles", metadata={"place": "<i>Java</i>"})
    documents = [*word_model.corpus(), evil, twin]
    return Searcher.build(folder, documents, word_model.retriever())


@pytest.fixture(scope="module")
def address(searcher) -> str:
    with services() as start:
        yield start(searcher)


def asked(page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


def ids(page) -> list[str]:
    return page.locator("#boolean .title").all_inner_texts()


def settled(page, condition: str) -> None:
    page.wait_for_function(f"() => !document.body.hasAttribute('aria-busy') && ({condition})")


def test_examples_come_from_the_documents_and_find_some(tab, address):
    page = tab(address)
    page.wait_for_selector("#examples button")
    texts = page.locator("#examples button").all_inner_texts()
    assert len(texts) > 2
    assert all(any(word in text for word in word_model.WORDS) for text in texts)
    operators = [
        example["operators"]
        for example in page.request.get(f"{address}examples").json()["examples"]
    ]
    assert [] in operators
    assert ["not"] in operators
    page.locator("#examples button").nth(1).click()
    page.wait_for_selector("#boolean .hit")
    assert asked(page)["q"] == [texts[1]]


def test_facets_become_filters_and_chips(tab, address):
    page = tab(f"{address}?q=moths")
    page.wait_for_selector("#filters:not([hidden])")
    page.evaluate("document.getElementById('filters').open = true")
    settled(page, "document.querySelector('#counted').innerText.includes('this search')")
    group = page.locator("fieldset", has_text="group")
    assert "beetles" in group.inner_text()
    assert page.locator("#facets i").count() == 0  # a value is never HTML
    group.get_by_label("birds").check()
    settled(page, "document.querySelector('#chips').innerText.includes('group=birds')")
    assert all(name.startswith("birds") for name in ids(page))
    assert "of 6 documents" in page.inner_text("#status")
    # The same field again: either value. The box keeps the focus.
    assert page.evaluate("document.activeElement.closest('label').innerText").startswith("birds")
    group.get_by_label("orchids").check()
    settled(page, "document.querySelector('#status').innerText.includes('of 12 documents')")
    page.fill("#condition", "year>=2000")
    page.press("#condition", "Enter")
    settled(page, "document.querySelectorAll('.chip').length === 3")
    assert asked(page)["filter"] == ["group=birds", "group=orchids", "year>=2000"]
    assert "of 4 documents" in page.inner_text("#status")
    page.get_by_label("Remove group=birds").click()
    settled(page, "document.querySelectorAll('.chip').length === 2")
    assert not group.get_by_label("birds").is_checked()
    assert all(name.startswith("orchids") for name in ids(page))
    page.get_by_label("Remove group=orchids").click()
    page.get_by_label("Remove year>=2000").click()
    settled(page, "document.querySelector('#chips').hidden")
    assert "filter" not in asked(page)
    # A filter that is wrong is an error, not an empty list.
    page.goto(f"{address}?q=moths&filter=nofield%3D1")
    page.wait_for_selector("#error:not([hidden])")
    assert "nofield" in page.inner_text("#error")


def test_pages_switches_and_history(tab, address):
    page = tab(f"{address}?q=moths&k=5")
    page.wait_for_selector("#boolean .hit")
    first = ids(page)
    assert "Results 1–5 of 27 documents" in page.inner_text("#status")
    assert page.locator("#previous").is_disabled()
    page.click("#next")
    settled(page, "document.querySelector('#place').innerText === '6–10 of 27'")
    second = ids(page)
    assert len(second) == 5
    assert not set(first) & set(second)
    assert page.locator("#boolean .rank").all_inner_texts() == ["6", "7", "8", "9", "10"]
    assert asked(page)["offset"] == ["5"]
    page.click("#options summary")
    page.select_option("#hybrid", "true")
    settled(page, "location.search.includes('hybrid=true')")
    page.select_option("#strict_not", "false")
    page.check("#compare")
    settled(page, "!document.querySelector('#same').hidden")  # there is no operator
    wanted = {"q": ["moths"], "k": ["5"], "hybrid": ["true"]}
    assert asked(page) == wanted | {"strict_not": ["false"], "compare": ["true"]}
    # A change of options begins at the first page; the last page has no next one.
    page.goto(f"{address}?q=moths&k=5&offset=25")
    settled(page, "document.querySelector('#place').innerText === '26–27 of 27'")
    assert page.locator("#next").is_disabled()
    page.go_back()
    settled(page, "document.querySelector('#compare').checked")
    page.go_back()
    settled(page, "!document.querySelector('#compare').checked")
    while "offset" not in asked(page):
        page.go_back()
    settled(page, "document.querySelector('#place').innerText === '6–10 of 27'")
    assert ids(page) == second
    assert page.input_value("#hybrid") == ""


def test_more_and_fewer_like_a_result(tab, address):
    page = tab(f"{address}?q=Java")
    page.wait_for_selector("#boolean .hit")
    page.get_by_label("Fewer like this: beetles Java").first.click()
    settled(page, "document.querySelectorAll('.chip.negative').length === 1")
    assert page.inner_text(".chip.negative .name") == "beetles Java"
    assert asked(page)["negative"] == ['like:"beetles-java"']
    assert "like beetles Java" in page.inner_text("#reading")
    # The document itself, and others of its kind, are no longer among the first.
    assert not any("beetles" in name for name in ids(page)[:3])
    page.get_by_label("More like this: moths Java").first.click()
    settled(page, "document.querySelectorAll('.chip').length === 2")
    assert asked(page)["positive"] == ['like:"moths-java"']
    assert all("Java" in name or "moths" in name for name in ids(page)[:3])
    assert "moths Java" not in ids(page)
    # The other way round, it is no longer a counter-example.
    page.goto(f"{address}?q=Java&negative=like:moths-borneo")
    page.wait_for_selector("#boolean .hit")
    settled(page, "document.querySelector('.chip .name').innerText === 'moths Borneo'")
    page.get_by_label("Remove fewer like like:moths-borneo").click()
    settled(page, "document.querySelector('#chips').hidden")
    # Without a query: only the document.
    page.goto(f'{address}?positive=like:"evil"')
    page.wait_for_selector("#boolean .hit")
    assert page.inner_text(".chip.positive .name") == "<img src=x onerror=alert(1)>"
    assert page.locator("#chips img, #reading img").count() == 0
    assert "Java" in ids(page)[0] or "twin" in ids(page)[0]


def test_a_link_reproduces_a_search(tab, address):
    link = f"{address}?q=moths+NOT+Sumatra&mode=explicit&strict_not=true&k=3&offset=3"
    link += "&filter=is_old%3Dtrue"
    page = tab(link)
    page.wait_for_selector("#boolean .hit")
    names = ids(page)
    assert page.inner_text("#chips").strip().startswith("is_old=true")
    assert page.input_value("#strict_not") == "true"
    assert page.input_value("#mode") == "explicit"
    assert page.url == link
    result = page.request.get(link.replace("/?", "/search?")).json()
    assert [hit["title"] or hit["id"] for hit in result["hits"]] == names


def test_matched_words_are_marked_and_nothing_becomes_html(tab, address):
    page = tab(f"{address}?q=old+Java+NOT+Sumatra&mode=explicit&compare=true")
    page.wait_for_selector("#boolean .hit mark")
    evil = page.locator("#boolean .hit", has_text="onerror")
    assert evil.locator("mark").all_inner_texts() == ["old", "Java", "Java"]
    assert evil.locator(".snippet").inner_text() == "old beetles <b>Java</b> 🦋 Java"
    assert page.locator("#results img, .snippet b").count() == 0
    assert page.locator("#boolean mark", has_text="Sumatra").count() == 0


@pytest.mark.parametrize(("width", "height"), [(1366, 768), (390, 844)])
def test_the_first_result_is_on_the_first_screen(tab, address, width, height):
    page = tab(
        f"{address}?q=moths+NOT+Sumatra&filter=is_old%3Dtrue",
        viewport={"width": width, "height": height},
    )
    page.wait_for_selector("#boolean .hit")
    box = page.locator("#boolean .hit").first.bounding_box()
    assert box["y"] + box["height"] <= height
    assert box["y"] <= height / 2
    # The explanation is one line until it is opened.
    assert page.locator("#parse").bounding_box()["height"] < 60
    page.focus("#parse summary")
    page.keyboard.press("Enter")
    assert page.locator("#parse .tree").is_visible()


def test_every_control_has_a_name_and_the_status_is_announced(tab, address):
    page = tab(address)
    page.wait_for_selector("#filters:not([hidden])")
    search(page, QUERY)
    for name in ("options", "filters", "parse"):
        page.click(f"#{name} > summary")
    assert page.evaluate(UNNAMED) == []
    assert page.get_attribute("#status", "aria-live") == "polite"
    roles = page.locator("main, header, footer, [role=search], nav").count()
    assert roles == 5
    # Escape closes a panel, and the focus goes to what opened it.
    page.focus("#k")
    page.keyboard.press("Escape")
    assert page.locator("#k").is_hidden()
    assert page.evaluate("document.activeElement.parentElement.id") == "options"
    order = []
    page.focus("#query")
    for _ in range(3):
        page.keyboard.press("Tab")
        order.append(page.evaluate("document.activeElement.innerText"))
    assert order[:2] == ["Search", "Options"]


def test_what_was_left_out_is_named_and_taken_back(tab):
    documents = [
        Document(id="cream", title="Panna cotta", text="A dessert of cream and sugar."),
        Document(id="jelly", title="Jelly", text="A dessert of fruit and sugar."),
    ]
    with services() as start:
        address = start(Searcher.from_texts(documents, word_model.retriever()))
        page = tab(f"{address}?q=dessert+NOT+dairy")
        page.wait_for_selector("#boolean .hit")
        assert ids(page) == ["Jelly"]
        assert page.inner_text("#left-out summary") == "Left out: 1 — cream is dairy"
        assert page.locator("#left-out ul").is_hidden()
        page.click("#left-out summary")
        assert "Panna cotta cream is dairy" in page.inner_text("#left-out ul")
        page.click("text=Take back cream")
        settled(page, "document.querySelectorAll('#boolean .hit').length === 2")
        assert asked(page)["allow"] == ["cream"]
        assert page.locator("#left-out").is_hidden()
        page.get_by_label("Remove not excluded: cream").click()
        settled(page, "document.querySelectorAll('#boolean .hit').length === 1")


def test_a_document_opens_at_its_passage(tab):
    text = "wings " * 3000 + "Sumatra moths here. " + "wings " * 3000
    long = Document(id="long", title="Long", text=text)
    with services() as start:
        model = word_model.retriever()
        searcher = Searcher.from_texts([long, *word_model.corpus()], model, passages=50)
        page = tab(f"{start(searcher)}?q=Long+Sumatra")
        page.wait_for_selector("#boolean .hit")
        page.locator("#boolean .title", has_text="Long").click()
        page.wait_for_selector(".whole .passage")
        assert "Sumatra" in page.inner_text(".passage")
        box, panel = (page.locator(one).bounding_box() for one in (".passage", ".whole"))
        assert panel["y"] <= box["y"] <= panel["y"] + panel["height"]
        assert page.evaluate("() => document.querySelector('.whole').scrollTop") > 500


def test_ranges_of_numbers_are_filters(tab):
    documents = [
        Document(id=str(n), text=f"moths Java {n}", metadata={"year": 1980 + n}) for n in range(40)
    ]
    with services() as start:
        page = tab(f"{start(Searcher.from_texts(documents, word_model.retriever()))}?q=moths")
        page.wait_for_selector("#filters:not([hidden])")
        page.evaluate("document.getElementById('filters').open = true")
        assert page.get_by_label("year, at most").get_attribute("placeholder") == "2019"
        page.get_by_label("year, at least").fill("2000")
        page.get_by_label("year, at least").press("Enter")
        settled(page, "document.querySelector('#status').innerText.includes('of 20 documents')")
        assert asked(page)["filter"] == ["year>=2000"]
        assert page.get_by_label("year, at least").input_value() == "2000"
        page.get_by_label("year, at least").fill("")
        page.get_by_label("year, at most").click()
        settled(page, "document.querySelector('#chips').hidden")


def test_both_themes_have_enough_contrast(tab, address):
    # Has a note, of a corrected word, and chips of three kinds.
    link = f"{address}?q=moths+NOT+Sumatre&filter=is_old%3Dtrue&k=20&positive=Borneo&negative=Java"
    for scheme in ("light", "dark"):
        page = tab(link, color_scheme=scheme)
        page.wait_for_selector("#boolean .hit")
        page.wait_for_selector("#filters:not([hidden])")
        for name in ("options", "filters", "parse"):
            page.click(f"#{name} > summary")
        for selector in (
            "#notes li", ".chip.filter .name", ".chip.positive", ".chip.negative", ".chip button",
            "mark", ".actions button", ".count", "legend", "summary", "#reading", "#add-condition",
            "#strict_not", ".why summary", ".meta dt", ".meta dd", "#compare-field",
        ):  # fmt: skip
            assert page.evaluate(CONTRAST, selector) >= 4.5, (scheme, selector)


def test_dates_scopes_and_the_space_beside_the_list(tab):
    rows = [
        {"text": f"{name} number {n}\nold birds", "seen": f"{2000 + n}-05-01", "size": 10.0**n}
        for n in range(14)
        for name in ("moths", "beetles")
    ]
    with services() as start:
        address = start(Searcher.from_texts(rows, word_model.retriever()))
        page = tab(f"{address}?q=moths+but+not+beetles", viewport={"width": 1366, "height": 768})
        page.wait_for_selector("#boolean .hit")
        page.wait_for_selector("#filters[open] fieldset")
        # A document without a title is called by its first line.
        assert ids(page)[0].startswith("moths number")
        assert page.locator("#scopes ins").all_inner_texts() == ["moths"]
        assert page.locator("#scopes del").all_inner_texts() == ["beetles"]
        assert "documents of this search have each value" in page.inner_text("#counted")
        hit, filters = (page.locator(name).first.bounding_box() for name in (".hit", "#filters"))
        assert filters["x"] > hit["x"] + hit["width"]
        assert filters["y"] < hit["y"]
        seen = page.get_by_label("seen, at least")
        assert (seen.get_attribute("type"), seen.get_attribute("max")) == ("date", "2013-12-31")
        seen.fill("2010-01-01")
        page.keyboard.press("Tab")
        settled(page, "document.querySelector('#status').innerText.includes('of 8 documents')")
        assert asked(page)["filter"] == ["seen>=2010-01-01"]
        # The largest number is seen as a whole.
        box = "box => box.scrollWidth <= box.clientWidth"
        page.get_by_label("size, at most").fill("123456")
        assert page.get_by_label("size, at most").evaluate(box)
        page.fill("#query", "other")
        assert page.locator("#scopes").is_hidden()
        # Two lists need the whole width.
        page.goto(f"{address}?q=birds+but+not+moths&compare=true")
        page.wait_for_selector("#plain .hit")
        page.wait_for_selector("#filters[open] fieldset")
        hit, filters = (page.locator(name).first.bounding_box() for name in (".hit", "#filters"))
        assert filters["y"] + filters["height"] <= hit["y"]
        page = tab(f"{address}?q=moths+but+not+beetles", viewport={"width": 390, "height": 844})
        page.wait_for_selector("#filters:not([hidden])")
        assert page.locator("#filters[open]").count() == 0
