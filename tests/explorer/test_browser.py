"""The page in a real browser: headless Chromium, driven by keyboard and pointer as a person would."""

import csv
import io
import json
import re
import shutil
import xml.etree.ElementTree as ET
from dataclasses import replace
from importlib import resources
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest

import stackfu as sf
from stackfu import Status
from stackfu.demo import digits_game
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


@pytest.fixture(scope="module")
def crowded_page(crowd, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "crowd.html"
    write_explorer(crowd, path, "Crowd", outside=-0.01)
    return path.as_uri()


@pytest.fixture
def opened(browser, page):
    browser.set_window_size(1280, 900)
    visit(browser, page + "#budget=0")
    return browser


def visit(browser, address):
    """Load a page anew: an address that differs in its fragment only would not."""
    browser.get("about:blank")
    browser.get(address)


def retype(field, text):
    field.clear()
    field.send_keys(text)


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
    assert opened.find_element(By.ID, "bound-name").text == "Outcomes without payments"
    assert opened.find_element(By.ID, "lower_bound").text == "1, proved"
    assert "cannot settle in any other way" in opened.find_element(By.ID, "words").text
    for solution, bound in zip(frontier, frontier.lower_bounds, strict=True):
        slider(opened).send_keys(Keys.ARROW_RIGHT)
        assert value(opened, "budget-value") == solution.budget
        assert value(opened, "server_loss") == solution.server_loss
        assert value(opened, "lower_bound") == bound
        assert value(opened, "spend") == solution.spend
        assert value(opened, "total") == solution.equilibrium.total
        assert column(opened, "payment") == solution.payments.tolist()
        assert column(opened, "participation") == solution.participation.tolist()
        np.testing.assert_array_equal(column(opened, "used"), frontier.game.sizes * solution.participation)
        assert value(opened, "used_samples") == sum(frontier.game.sizes * solution.participation)
        np.testing.assert_array_equal(column(opened, "utility"), solution.equilibrium.utilities)
        effects = solution.marginal_effects()
        if effects.reason:
            cells = opened.find_elements(By.CSS_SELECTOR, '#rows [data-name="rate"]')
            assert {cell.get_attribute("textContent") for cell in cells} == {"–"}
        else:
            np.testing.assert_array_equal(column(opened, "rate"), effects.together)
        np.testing.assert_array_equal(column(opened, "value"), solution.values().shapley)
        np.testing.assert_array_equal(column(opened, "leave_one_out"), solution.values().leave_one_out)
        # what people read is what the attribute says, rounded
        shown = float(opened.find_element(By.ID, "server_loss").text)
        assert shown == pytest.approx(solution.server_loss, rel=1e-4)
        certificate = opened.find_element(By.ID, "certificate").get_attribute("textContent")
        assert "no payments within the budget" in certificate
        said = opened.find_element(By.ID, "words").text
        assert "It is proved" in said
        paid = solution.payouts > 1e-9 * frontier.game.costs  # less than that is rounding, and reads as 0
        assert f"to {paid.sum()} of {frontier.game.count} clients" in said
        cells = opened.find_elements(By.CSS_SELECTOR, '#rows [data-name="receives"]')
        np.testing.assert_array_equal([cell.text != "0" for cell in cells], paid)


@pytest.mark.parametrize(("bound", "proved"), [(0.0, False), (0.01, True)])
def test_a_search_that_was_stopped_is_not_taken_for_what_money_buys(
    browser, frontier, tmp_path, bound, proved
):
    """5,000 clients, nothing found in the time: the page said that the budget buys nothing, and called a bound of 0 a proof."""
    game, own = frontier.game, frontier[-1]
    unpaid = game.equilibrium()
    stopped = replace(
        own, payments=game.no_payments, equilibrium=unpaid, objective=unpaid.server_loss, lower_bound=bound,
        status=Status.TIME_LIMIT,
    )  # fmt: skip
    traced = replace(frontier, solutions=(*frontier.solutions[:-1], stopped))
    path = tmp_path / "stopped.html"
    write_explorer(traced, path, compare=[])
    visit(browser, path.as_uri())
    slider(browser).send_keys(Keys.END)
    said = browser.find_element(By.ID, "words").text
    assert "as without payments. The search was stopped before it was done: better payments" in said
    assert ("It is proved" in said) == proved
    certificate = browser.find_element(By.ID, "certificate").get_attribute("textContent")
    assert "below 0;" not in certificate
    assert certificate.startswith("Proved" if proved else "Of these payments nothing is proved")


@pytest.mark.parametrize(("cost_scale", "few"), [(1e5, True), (1.0, False)])
def test_the_page_says_first_that_a_plan_uses_less_than_a_sample_each(browser, tmp_path, cost_scale, few):
    game = digits_game(cost_scale=cost_scale)
    frontier = game.frontier([0.0, 1e-3], progress=False)
    write_explorer(frontier, tmp_path / "few.html", "Few", budget=1e-3)
    browser.get((tmp_path / "few.html").as_uri())
    words = browser.find_element(By.ID, "words").text
    assert words.startswith("Caution: less than one sample for each client") is few
    assert bool(frontier[-1].cautions) is few


def test_home_and_end_reach_both_ends(opened, frontier):
    slider(opened).send_keys(Keys.END)
    assert value(opened, "budget-value") == frontier.budgets[-1]
    slider(opened).send_keys(Keys.HOME)
    assert value(opened, "budget-value") == 0.0


def test_a_click_on_the_frontier_moves_the_slider(opened, frontier):
    dots = opened.find_elements(By.CSS_SELECTOR, "#frontier [data-stop]")
    assert len(dots) == len(frontier) + 1
    dots[2].click()
    assert value(opened, "budget-value") == frontier.budgets[1]


def test_marks_tell_their_story_to_the_keyboard(opened, frontier):
    slider(opened).send_keys(Keys.END)
    marks = opened.find_elements(By.CSS_SELECTOR, "#participation [data-client]")
    assert {int(m.get_attribute("data-client")) for m in marks} == set(frontier.game.remaining.tolist())
    opened.execute_script("arguments[0].focus()", marks[0])
    active = opened.switch_to.active_element
    assert "Client" in active.get_attribute("aria-label")
    tip = opened.find_element(By.ID, "tip")
    assert tip.is_displayed()
    for word in ("utility", "predicted change", "stays out below", "takes part fully above"):
        assert word in tip.text
    active.send_keys(Keys.ESCAPE)
    assert not tip.is_displayed()


def test_every_equilibrium_is_marked_behind_the_fold(opened, frontier):
    assert not opened.find_element(By.ID, "level").is_displayed()
    opened.find_element(By.CSS_SELECTOR, "#mathematics summary").click()
    assert opened.find_element(By.ID, "level").is_displayed()
    for i, stop in enumerate(explorer_data(frontier, "x", compare=())["stops"]):
        marks = opened.find_elements(By.CSS_SELECTOR, "#level .mark")
        assert [float(m.get_attribute("data-total")) for m in marks] == [
            e["total"] for e in stop["equilibria"]
        ]
        if i < len(frontier):
            slider(opened).send_keys(Keys.ARROW_RIGHT)


def test_a_typed_budget_shows_what_is_affordable_and_what_is_proved(opened, frontier):
    retype(opened.find_element(By.ID, "typed"), "0.06")
    assert value(opened, "budget-value") == 0.05
    said = opened.find_element(By.ID, "between").text
    low, high = map(float, re.search(r"between ([\d.]+) and ([\d.]+): proved", said).groups())
    bound, reached = frontier.lower_bounds[2], frontier[1].objective
    assert bound * (1 - 1e-4) < low <= bound  # what is read is proved too: rounded away from the claim
    assert reached <= high < reached * (1 + 1e-4)
    retype(opened.find_element(By.ID, "typed"), "7")
    assert value(opened, "budget-value") == frontier.budgets[-1]
    assert "not computed" in opened.find_element(By.ID, "between").text
    slider(opened).send_keys(Keys.HOME)
    assert opened.find_element(By.ID, "typed").get_attribute("value") == "0"


def test_lines_are_switched_on_and_off(opened):
    def drawn():
        paths = opened.find_elements(By.CSS_SELECTOR, "#frontier [data-line]")
        return {path.get_attribute("data-line") for path in paths}

    assert drawn() == set()
    for name in ("uniform", "haipo", "capped"):
        opened.find_element(By.CSS_SELECTOR, f'#lines input[value="{name}"]').click()
        assert name in drawn()
    opened.find_element(By.CSS_SELECTOR, '#lines input[value="haipo"]').click()
    assert drawn() == {"uniform", "capped"}


def test_capped_offers_below_the_steps_are_explained(opened):
    assert not opened.find_element(By.ID, "capped-words").is_displayed()
    opened.find_element(By.CSS_SELECTOR, '#lines input[value="capped"]').click()
    assert "Capped offers may" in opened.find_element(By.ID, "capped-words").text


def test_who_would_leave_is_marked(opened, frontier):
    utilities = frontier.game.equilibrium().utilities
    assert opened.find_elements(By.CSS_SELECTOR, ".leaves") == []
    apart = float(np.sort(utilities)[2:4].mean())  # the three that are worst off leave
    retype(opened.find_element(By.ID, "outside"), repr(apart))
    rows = opened.find_elements(By.CSS_SELECTOR, "#rows tr.leaves th")
    expected = {frontier.game.label(k) for k in np.flatnonzero(utilities < apart)}
    assert {row.text for row in rows} == {str(name) for name in expected}
    assert len(opened.find_elements(By.CSS_SELECTOR, "#participation circle.leaves")) == 3
    assert "3 would leave" in opened.find_element(By.ID, "leave-words").text


def test_forgotten_clients_are_drawn(opened, frontier):
    gone = opened.find_elements(By.CSS_SELECTOR, "#participation [data-forgotten]")
    names = {mark.get_attribute("data-forgotten") for mark in gone}
    assert names == {str(frontier.game.called(k)) for k in frontier.game.removed}


def test_the_loss_axis_starts_at_zero(opened):
    labels = opened.find_elements(By.CSS_SELECTOR, '#frontier text[text-anchor="end"]')
    assert labels[0].text == "0"


def test_a_link_leads_to_the_same_view(opened, page, frontier):
    slider(opened).send_keys(Keys.END)
    opened.find_element(By.CSS_SELECTOR, '#lines input[value="haipo"]').click()
    retype(opened.find_element(By.ID, "outside"), "-0.05")
    address = opened.current_url
    state = parse_qs(urlsplit(address).fragment)
    assert state == {"budget": ["0.15"], "lines": ["haipo"], "outside": ["-0.05"]}
    table = opened.find_element(By.ID, "rows").text
    visit(opened, address)
    assert value(opened, "budget-value") == frontier.budgets[-1]
    assert opened.find_element(By.ID, "rows").text == table
    assert len(opened.find_elements(By.CSS_SELECTOR, '#frontier [data-line="haipo"]')) == 1
    # nonsense in a link is not obeyed
    visit(opened, page + "#budget=-3&lines=hapio&outside=x")
    assert value(opened, "budget-value") == frontier.budgets[0]
    assert opened.find_element(By.ID, "outside").get_attribute("value") == ""


def test_table_and_pictures_can_be_saved(opened, frontier, tmp_path, wait_until):
    def downloaded(name):
        """The file's content once the browser has renamed it to its name."""
        path = tmp_path / name
        wait_until(path.exists, name)
        return path.read_bytes()

    opened.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)}
    )
    slider(opened).send_keys(Keys.END)
    opened.find_element(By.ID, "csv").click()
    rows = list(csv.DictReader(io.StringIO(downloaded("clients-budget-0.15.csv").decode())))
    assert [row["client"] for row in rows] == [str(name) for name in frontier.game.names]
    assert [float(row["payment"]) for row in rows] == frontier[-1].payments.tolist()
    opened.execute_script("document.querySelector('[data-save=frontier][data-kind=svg]').click()")
    drawing = downloaded("frontier-budget-0.15.svg").decode()
    root = ET.fromstring(drawing)
    assert root.tag.endswith("svg")
    assert "var(" not in drawing
    opened.execute_script("document.querySelector('[data-save=participation][data-kind=png]').click()")
    picture = downloaded("participation-budget-0.15.png")
    assert picture.startswith(b"\x89PNG\r\n")
    assert int.from_bytes(picture[16:20], "big") >= 480


def test_the_page_opens_at_the_knee_of_the_frontier_or_at_a_given_budget(browser, page, frontier, tmp_path):
    visit(browser, page)
    assert value(browser, "budget-value") == frontier.budgets[0]
    assert "It is proved" in browser.find_element(By.ID, "words").text
    write_explorer(frontier, tmp_path / "own.html", compare=[], budget=0.06)
    visit(browser, (tmp_path / "own.html").as_uri())
    assert value(browser, "budget-value") == 0.05


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory):
    """A page about 25 clients with long names, one of which owns data that are far from all others."""
    rng = np.random.default_rng(25)
    features = 0.2 * rng.normal(size=(27, 6)) + 1.0
    features[3, 3] += 6.0
    towns = (
        "York",
        "Hull",
        "Kingston upon Hull, City of",
        "Sheffield Teaching Hospitals NHS Foundation Trust",
        "Bath",
    )
    emb = sf.MeanEmbeddings.from_features(features, names=[f"{towns[i % 5]} {i}" for i in range(27)])
    game = sf.StackelbergGame(emb, rng.integers(20, 400, 27), removed=["York 0", "Hull 1"], cost_scale=1.0)
    traced = game.frontier([0.1 * game.full_participation_price], method="haipo")
    path = tmp_path_factory.mktemp("page") / "hospitals.html"
    write_explorer(traced, path, "Hospitals", compare=[])
    return path.as_uri(), game


@pytest.mark.parametrize("width", [390, 1366])
def test_names_on_the_map_cover_neither_each_other_nor_circles(browser, hospitals, width):
    address, game = hospitals
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    try:
        visit(browser, address)
        boxes = browser.execute_script(
            "return [...document.querySelectorAll('#participation .name')].map((text) => {"
            "  const b = text.getBoundingClientRect(); return [text.textContent, b.left, b.top, b.right, b.bottom]; })"
        )
        assert len(boxes) >= 5
        for i, (name, left, top, right, bottom) in enumerate(boxes):
            for other, left2, top2, right2, bottom2 in boxes[:i]:
                across = min(right, right2) - max(left, left2)
                down = min(bottom, bottom2) - max(top, top2)
                assert across < 2 or down < 4, (name, other)
        # the client far off stands at the edge with its value, and the others have most of the width
        far = int(np.argmax(game.heterogeneity))
        edge = browser.find_elements(By.CSS_SELECTOR, "#participation [data-edge]")
        assert len(edge) == 1
        assert any(f"({game.heterogeneity[far]:.3g})" in name for name, *_ in boxes)
        assert len(browser.find_elements(By.CSS_SELECTOR, "#participation [data-client]")) == 25
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_groups_of_many_clients(browser, crowded_page, crowd):
    visit(browser, crowded_page)
    slider(browser).send_keys(Keys.END)
    assert len(browser.find_elements(By.CSS_SELECTOR, "#participation [data-group]")) == 10
    heads = [cell.text for cell in browser.find_elements(By.CSS_SELECTOR, "#head th")]
    assert heads[0] == "group"
    assert heads[-1] == "would leave"
    assert sum(column(browser, "receives")) == pytest.approx(crowd[0].spend)
    assert not browser.find_element(By.ID, "leave").is_displayed()
    assert not browser.find_element(By.ID, "lines").is_displayed()


@pytest.mark.parametrize(("width", "height"), [(1366, 768), (768, 1024), (320, 568)])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_fits_every_screen_in_light_and_dark_and_is_accessible(
    browser, page, crowded_page, width, height, scheme
):
    axe = pytest.importorskip("axe_core_python")
    script = (resources.files(axe) / "axe.min.js").read_text(encoding="utf-8")
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    try:
        for address in (
            page + "#budget=0.05&lines=haipo,capped&outside=-0.05&mathematics=open",
            crowded_page,
        ):
            visit(browser, address)
            assert browser.execute_script("return document.documentElement.scrollWidth") <= width
            smallest = browser.execute_script(
                "const texts = [...document.querySelectorAll('svg text')];"
                "return Math.min(...texts.map((text) => text.getBoundingClientRect().height))"
            )
            assert smallest >= 11  # text stays legible on a phone
            cut = browser.execute_script(
                "return [...document.querySelectorAll('svg text')].filter((text) => {"
                "  const here = text.getBoundingClientRect(), all = text.ownerSVGElement.getBoundingClientRect();"
                "  return here.left < all.left - 1 || here.right > all.right + 1; }).map((text) => text.textContent)"
            )
            assert cut == []
            hidden = browser.find_element(By.ID, "scroll").get_property("scrollWidth") > (
                browser.find_element(By.ID, "scroll").get_property("clientWidth")
            )
            assert browser.find_element(By.ID, "swipe").is_displayed() == hidden
            browser.execute_script(script)
            found = browser.execute_async_script("axe.run().then(arguments[arguments.length - 1])")
            said = [(v["id"], [n["target"] for n in v["nodes"]]) for v in found["violations"]]
            assert said == []
        visit(browser, page)
        assert background(browser) == {"light": "rgb(251, 250, 247)", "dark": "rgb(18, 21, 27)"}[scheme]
        browser.find_element(By.ID, "theme").click()
        assert background(browser) == {"dark": "rgb(251, 250, 247)", "light": "rgb(18, 21, 27)"}[scheme]
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def background(browser):
    return browser.execute_script("return getComputedStyle(document.body).backgroundColor")


def test_no_console_message_and_no_request(browser, page):
    browser.get("about:blank")
    browser.get_log("performance")
    browser.get_log("browser")
    browser.get(page)
    slider(browser).send_keys(Keys.END)
    assert browser.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = {e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"}
    assert {url for url in asked if not url.startswith("data:")} == {page}
