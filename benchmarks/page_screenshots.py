"""Take the screenshots of the page for the documentation.

    python -m benchmarks.page_screenshots http://127.0.0.1:8000/ "moths of Borneo but not Sumatra"

Needs a running service, Playwright and Chromium.
"""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path
from urllib.parse import urlencode

IMAGES = Path(__file__).parent.parent / "docs" / "images"
#: Name, width, height, device scale factor, whether it is a phone.
SCREENSHOTS = (("page", 1280, 1080, 1, False), ("page-phone", 390, 1200, 1.5, True))


def main() -> None:
    """Take the screenshots."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address")
    parser.add_argument("query")
    parser.add_argument("--out", type=Path, default=IMAGES)
    parser.add_argument("--dark", action="store_true")
    args = parser.parse_args()
    from playwright.sync_api import sync_playwright

    options = ["--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=options)
        for name, width, height, scale, is_phone in SCREENSHOTS:
            page = browser.new_page(
                viewport={"width": width, "height": height},
                device_scale_factor=scale,
                has_touch=is_phone,
                color_scheme="dark" if args.dark else "light",
            )
            page.goto(f"{args.address}?{urlencode({'q': args.query})}")
            page.wait_for_selector("#boolean .hit")
            page.screenshot(path=args.out / f"{name}.png")
            print(args.out / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
