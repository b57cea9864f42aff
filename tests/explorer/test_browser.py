"""The page in a real browser: headless Chromium, driven by keyboard and pointer as a person would."""

import shutil

import numpy as np
import pytest

from stackfu.explorer import explorer_data, write_explorer

webdriver = pytest.importorskip(
    "selenium.webdriver", reason="browser tests need selenium (make test installs it)"
)
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER),
    reason="browser tests need chromium and chromedriver (make test installs them if it may)",
)


@pytest.fixture(scope="module")
def browser():
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def page(frontier, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "explorer.html"
    write_explorer(frontier, path, "Digits")
    return path.as_uri()


@pytest.fixture
def opened(browser, page):
    browser.set_window_size(1280, 900)
    browser.get(page)
    return browser


def value(browser, id_):
    return float(browser.find_element(By.ID, id_).get_attribute("data-value"))


def slider(browser):
    return browser.find_element(By.ID, "budget")


def column(browser, name):
    cells = browser.find_elements(By.CSS_SELECTOR, f'#rows [data-name="{name}"]')
    return [float(cell.get_attribute("data-value")) for cell in cells]


def test_the_numbers_are_the_library_s_at_every_stop(opened, frontier):
    unpaid = frontier.game.equilibrium()
    assert value(opened, "server_loss") == unpaid.server_loss
    assert opened.find_element(By.ID, "lower_bound").text == "–"
    for solution, bound in zip(frontier, frontier.lower_bounds, strict=True):
        slider(opened).send_keys(Keys.ARROW_RIGHT)
        assert value(opened, "budget-value") == solution.budget
        assert value(opened, "server_loss") == solution.server_loss
        assert value(opened, "lower_bound") == bound
        assert value(opened, "spend") == solution.spend
        assert value(opened, "total") == solution.equilibrium.total
        assert column(opened, "payment") == solution.payments.tolist()
        assert column(opened, "participation") == solution.participation.tolist()
        np.testing.assert_array_equal(column(opened, "utility"), solution.equilibrium.utilities)
        # what people read is what the attribute says, rounded
        shown = float(opened.find_element(By.ID, "server_loss").text)
        assert shown == pytest.approx(solution.server_loss, rel=1e-4)
        assert "no payments within the budget" in opened.find_element(By.ID, "certificate").text


def test_home_and_end_reach_both_ends(opened, frontier):
    slider(opened).send_keys(Keys.END)
    assert value(opened, "budget-value") == frontier.budgets[-1]
    slider(opened).send_keys(Keys.HOME)
    assert value(opened, "budget-value") == 0.0


def test_a_click_on_the_frontier_moves_the_slider(opened, frontier):
    dots = opened.find_elements(By.CSS_SELECTOR, "#frontier .mark")
    assert len(dots) == len(frontier) + 1
    dots[2].click()
    assert value(opened, "budget-value") == frontier.budgets[1]


def test_marks_tell_their_story_to_the_keyboard(opened, frontier):
    slider(opened).send_keys(Keys.END)
    marks = opened.find_elements(By.CSS_SELECTOR, "#participation .mark")
    assert {int(m.get_attribute("data-client")) for m in marks} == set(frontier.game.remaining.tolist())
    slider(opened).send_keys(Keys.TAB)
    active = opened.switch_to.active_element
    assert "Client" in active.get_attribute("aria-label")
    tip = opened.find_element(By.ID, "tip")
    assert tip.is_displayed()
    for word in ("utility", "stays out below", "takes part fully above"):
        assert word in tip.text
    active.send_keys(Keys.ESCAPE)
    assert not tip.is_displayed()


def test_every_equilibrium_is_marked(opened, frontier):
    for i, stop in enumerate(explorer_data(frontier, "x")["stops"]):
        marks = opened.find_elements(By.CSS_SELECTOR, "#level .mark")
        assert [float(m.get_attribute("data-total")) for m in marks] == [
            e["total"] for e in stop["equilibria"]
        ]
        if i < len(frontier):
            slider(opened).send_keys(Keys.ARROW_RIGHT)


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_fits_laptop_and_phone_in_light_and_dark(browser, page, width, height, scheme):
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    try:
        browser.get(page)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        assert background(browser) == {"light": "rgb(251, 250, 247)", "dark": "rgb(18, 21, 27)"}[scheme]
        browser.find_element(By.ID, "theme").click()
        assert background(browser) == {"dark": "rgb(251, 250, 247)", "light": "rgb(18, 21, 27)"}[scheme]
        smallest = browser.execute_script(
            "const texts = [...document.querySelectorAll('svg text')];"
            "return Math.min(...texts.map((text) => text.getBoundingClientRect().height))"
        )
        assert smallest >= 11  # text stays legible on a phone
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def background(browser):
    return browser.execute_script("return getComputedStyle(document.body).backgroundColor")


def test_no_console_message_and_no_request(browser, page):
    browser.get_log("performance")
    browser.get(page)
    slider(browser).send_keys(Keys.END)
    assert browser.get_log("browser") == []
    import json

    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = {e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"}
    assert {url for url in asked if not url.startswith("data:")} == {page}
