"""A real Chromium without a window, for tests: what a page logs, what it asks the network for, how it looks."""

import json
import os
import shutil
import tempfile
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
REQUIRE = "SOLERA_REQUIRE_BROWSER"  # set: tests that need a browser fail where there is none


def found() -> tuple[str, str] | None:
    """A Chromium and its driver on the PATH."""
    browser = next((path for name in CHROMIUM if (path := shutil.which(name))), None)
    driver = shutil.which("chromedriver")
    return (browser, driver) if browser and driver else None


class Browser:
    """One Chromium; every `open` forgets what was logged before."""

    def __init__(self, browser: str, driver: str):
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service

        self.profile = tempfile.TemporaryDirectory(prefix="solera-browser-", ignore_cleanup_errors=True)
        options = webdriver.ChromeOptions()
        options.binary_location = browser
        for flag in (*FLAGS, f"--user-data-dir={self.profile.name}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(driver))
        self.driver.set_script_timeout(120)

    def open(self, address: str | Path, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Shows a file or an address at this width, in the light or dark colours that a system would ask for."""
        self.driver.get("about:blank")
        self.resize(width, height)
        wishes = {"prefers-color-scheme": "dark" if dark else "light", "prefers-reduced-motion": "reduce"}
        features = [{"name": name, "value": value} for name, value in wishes.items()]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        for log in ("browser", "performance"):
            self.driver.get_log(log)  # reading empties it
        self.driver.get(address.resolve().as_uri() if isinstance(address, Path) else address)

    def resize(self, width: int, height: int = 900) -> None:
        """A screen this wide: a window cannot be as narrow as a phone."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 700}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def run(self, script: str, *arguments: Any) -> Any:
        """The value of a script, with `return`."""
        return self.driver.execute_script(script, *arguments)

    def until(self, script: str, seconds: float = 120) -> Any:
        """Waits until a script returns something true, and returns it."""
        from selenium.webdriver.support.ui import WebDriverWait

        return WebDriverWait(self.driver, seconds, 0.05).until(lambda _: self.run(script), f"never true: {script}")

    def errors(self) -> list[str]:
        """Errors and warnings in the console since the page was opened."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]

    def requests(self) -> list[str]:
        """Addresses that were asked for since the page was opened, the first being its own."""
        sent = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        urls = [m["params"]["request"]["url"] for m in sent if m["method"] == "Network.requestWillBeSent"]
        return [url for url in urls if not url.startswith(("data:", "blob:", "about:"))]

    def screenshot(self, path: Path, width: int = 1280, height: int | None = None) -> Path:
        """The whole page (or its upper part) as a PNG."""
        self.resize(width)
        tall = height or int(self.run("return document.documentElement.scrollHeight"))
        clip = {"x": 0, "y": 0, "width": width, "height": tall, "scale": 1}
        options = {"captureBeyondViewport": True, "clip": clip}
        path.write_bytes(b64decode(self.driver.execute_cdp_cmd("Page.captureScreenshot", options)["data"]))
        return path

    def close(self) -> None:
        """Ends the process and forgets its profile."""
        self.driver.quit()
        self.profile.cleanup()


def start() -> Browser:
    """A browser; where there is none the test is skipped, or fails if browsers are required."""
    paths = found()
    if paths is None:
        why = "no Chromium with chromedriver on the PATH: apt-get install chromium chromium-driver"
        if os.environ.get(REQUIRE):
            pytest.fail(why)
        pytest.skip(why)
    return Browser(*paths)
