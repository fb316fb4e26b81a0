"""Chromium, and services that it opens."""

from __future__ import annotations

import os
import shutil
import threading
from contextlib import contextmanager
from importlib.util import find_spec

import pytest

from boolattn.service.app import Server, address_of, create_app, listen
from boolattn.service.settings import ServiceSettings

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")

needs_browser = [
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


@contextmanager
def chromium():
    """Start a browser."""
    from playwright.sync_api import sync_playwright

    options = [*QUIET, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=BROWSER, args=options)
        yield started
        started.close()


@contextmanager
def services():
    """Give a function that starts a service in a thread; all are stopped at the end."""
    stops = []

    def start(searcher, **settings) -> str:
        [taken] = listen("127.0.0.1", 0)
        is_up = threading.Event()
        chosen = ServiceSettings(**settings)
        server = Server(create_app(searcher, chosen), chosen, ready=is_up.set)
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


def search(page, query):
    page.fill("#query", query)
    page.press("#query", "Enter")
    page.wait_for_function(
        "query => document.title.startsWith(query) && !document.body.hasAttribute('aria-busy')",
        arg=query,
    )
