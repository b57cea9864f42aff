"""The page checks its own proofs: true ones are accepted and others refused, in words, on a phone and on a desk."""

import json
import re

import pytest
from test_browser import By, pytestmark, visit  # noqa: F401
from test_browser import browser as browser  # the same browser, started once for this module

from stackfu.explorer import explorer_page

TRUE = "Proved on this computer"


@pytest.fixture(scope="module")
def whole(frontier):
    return explorer_page(frontier, "Digits", compare=())


def check(browser, wait_until, path, page, stop):
    """Open a page at a stop, press the button, and return the verdict and its sentence."""
    path.write_text(page, encoding="utf-8")
    visit(browser, path.as_uri())
    browser.execute_script(
        "const s = document.getElementById('budget'); s.value = arguments[0]; s.dispatchEvent(new Event('input'))",
        stop,
    )
    browser.find_element(By.ID, "check").click()
    verdict = browser.find_element(By.ID, "verdict")
    wait_until(verdict.is_displayed, "the verdict")
    return verdict.get_attribute("data-verdict"), verdict.text


def moved(page, element, change):
    """A page with another value in its data or its proofs."""
    pattern = re.compile(rf'(<script type="application/json" id="{element}">)(.*?)(</script>)', re.DOTALL)
    value = json.loads(pattern.search(page)[2])
    change(value)
    text = json.dumps(value).replace("<", "\\u003c")
    return pattern.sub(lambda found: found[1] + text + found[3], page)


@pytest.mark.parametrize("width", [390, 1366])
def test_an_honest_page_is_proved(browser, wait_until, whole, tmp_path, width):
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        for stop in (1, 2, 3):
            verdict, said = check(browser, wait_until, tmp_path / "page.html", whole, stop)
            assert verdict == "proved", said
            assert said.startswith(TRUE)
            assert "the bound holds" in said
            lines = browser.find_elements(By.CSS_SELECTOR, "#checked li")
            assert len(lines) >= 10
            wide = browser.execute_script("return document.documentElement.scrollWidth > innerWidth")
            assert not wide
        # the verdict was not about another stop
        browser.execute_script(
            "const s = document.getElementById('budget'); s.value = 1; s.dispatchEvent(new Event('input'))"
        )
        assert not browser.find_element(By.ID, "verdict").is_displayed()
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize(
    ("element", "change", "words"),
    [
        (
            "data",
            lambda d: d["stops"][2].update(server_loss=d["stops"][2]["server_loss"] * 0.99),
            "server loss of this page",
        ),
        ("data", lambda d: d["stops"][2].update(spend=0.04), "spend of this page"),
        (
            "data",
            lambda d: d["stops"][2].update(lower_bound=d["stops"][2]["objective"]),
            "bound of this page",
        ),
        ("data", lambda d: d["stops"][2]["payments"].__setitem__(0, 0.5), "payments of this page"),
        ("data", lambda d: d["stops"][2]["participation"].__setitem__(0, 0.5), "participation of this page"),
        ("data", lambda d: d["clients"]["cost"].__setitem__(0, 9.0), "costs of this page"),
        ("proofs", lambda p: p[2]["certificate"].update(claim="0" * 64), "for another claim"),
        ("proofs", lambda p: p[2]["certificate"].update(lower=1.0), "does not prove the lower bound"),
        ("proofs", lambda p: p[2].update(version=99), "version 99"),
    ],
)
def test_a_page_with_another_number_is_refused(browser, wait_until, whole, tmp_path, element, change, words):
    verdict, said = check(browser, wait_until, tmp_path / "page.html", moved(whole, element, change), 2)
    assert verdict == "refused"
    assert words in said


@pytest.mark.parametrize("place", ["names", "claim"])
def test_nothing_of_a_proof_becomes_markup(browser, wait_until, whole, tmp_path, place):
    markup = "<img src=x onerror=\"document.title='taken over'\">"

    def change(proofs):
        if place == "names":
            proofs[2]["equilibrium"]["game"]["names"] = [f"{markup}{k}" for k in range(10)]
            proofs[2]["equilibrium"]["participation"]["array"][0] = 2.0
        else:
            proofs[2]["certificate"]["claim"] = markup + "\u202e\u0007"

    verdict, said = check(browser, wait_until, tmp_path / "page.html", moved(whole, "proofs", change), 2)
    assert verdict == "refused"
    assert not browser.find_elements(By.CSS_SELECTOR, "#again img")
    assert "taken over" not in browser.title
    assert "\u202e" not in said


def test_without_payments_there_is_nothing_to_check(browser, wait_until, whole, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(whole, encoding="utf-8")
    visit(browser, path.as_uri() + "#budget=0")
    assert not browser.find_element(By.ID, "check").is_enabled()
    assert "no proof to check" in browser.find_element(By.ID, "check-words").text
