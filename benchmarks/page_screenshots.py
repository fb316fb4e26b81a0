"""Take the screenshots of the page for the documentation.

    python -m benchmarks.page_screenshots http://127.0.0.1:8000/ "moths of Borneo but not Sumatra"

Needs a running service, Playwright, Chromium and Pillow.
"""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path
from urllib.parse import urlencode

IMAGES = Path(__file__).parent.parent / "docs" / "images"
#: Name, width, height, device scale factor, whether it is a phone, light or dark.
SCREENSHOTS = (
    ("page", 1366, 768, 1, False, "light"),
    ("page-dark", 1366, 768, 1, False, "dark"),
    ("page-phone", 390, 844, 1.5, True, "light"),
)
N_COLOURS = 64  # of a picture, which a page of text does not exceed by much


def main() -> None:
    """Take the screenshots."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address")
    parser.add_argument("query")
    parser.add_argument("--out", type=Path, default=IMAGES)
    args = parser.parse_args()
    from PIL import Image
    from playwright.sync_api import sync_playwright

    options = ["--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=options)
        for name, width, height, scale, is_phone, scheme in SCREENSHOTS:
            page = browser.new_page(
                viewport={"width": width, "height": height},
                device_scale_factor=scale,
                has_touch=is_phone,
                color_scheme=scheme,
            )
            page.goto(f"{args.address}?{urlencode({'q': args.query})}")
            page.wait_for_selector("#boolean .hit")
            page.wait_for_selector("#filters:not([hidden])")
            path = args.out / f"{name}.png"
            page.screenshot(path=path)
            Image.open(path).convert("RGB").quantize(N_COLOURS).save(path, optimize=True)
            print(path)
        browser.close()


if __name__ == "__main__":
    main()
