"""The pages in a real browser, opened as files. They are skipped where there is no browser."""

import shutil

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="pip install '.[browser]'")
PROGRAMS = ("chromium-headless-shell", "chromium", "google-chrome", "google-chrome-stable")
PAGES = [
    "index.html", "steps/11-14.html", "steps/15-18.html", "depth/index.html",
    "definitions/index.html", "definitions/tensor_backward.html", "labs/stage02.html",
    "search.html",
]  # fmt: skip


@pytest.fixture(scope="module")
def browser(site):
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip("there is no Chromium: apt-get install chromium-headless-shell")
    with sync_api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=program)
        yield browser
        browser.close()


@pytest.fixture
def open_page(site, browser):
    """Open a page of the site; at the end, nothing may have been wrong in the console."""
    wrong, contexts = [], []

    def opened(name, width=1280, **options):
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}, **options))
        page = contexts[-1].new_page()
        page.on("console", lambda m: wrong.append(m.text) if m.type in ("error", "warning") else 0)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto((site / name).as_uri() if "?" not in name else f"{site.as_uri()}/{name}")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_does_not_scroll_sideways_on_a_telephone(open_page, name, scheme):
    page = open_page(name, width=390, color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach((each) => (each.open = true))")
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_selected_code_has_no_line_numbers_no_marks_and_no_removed_lines(open_page):
    page = open_page("steps/11-14.html")
    block = page.locator("#step14 .diff").first
    block.locator("pre").evaluate("(pre) => getSelection().selectAllChildren(pre)")
    selected = page.evaluate("getSelection().toString()")
    expected = block.evaluate(
        "(b) => [...b.querySelectorAll('ins, span[data-n]')].map((l) => l.textContent).join('')"
    )
    assert [line for line in selected.splitlines() if line.strip()] == [
        line for line in expected.splitlines() if line.strip()
    ]
    assert "x.grad = gx if x.grad is None else x.grad + gx" in selected
    assert block.locator("del").count() == 1 and "x.grad = gx\n" not in selected


def test_the_button_copies_the_same(open_page):
    page = open_page("steps/11-14.html", permissions=["clipboard-read", "clipboard-write"])
    block = page.locator("#step14 .diff").first
    block.hover()
    block.locator("button.copy").click()
    block.get_by_text("Copied").wait_for()
    lines = page.evaluate("navigator.clipboard.readText()").splitlines()
    assert "    def cleargrad(self):" in lines
    assert "                x.grad = gx" not in lines
    assert not [line for line in lines if line[:1] in "0123456789+-" and line]


@pytest.mark.parametrize("word, found", [("backward", "backward"), ("accumulates", "11 to 14")])
def test_the_search_finds_a_definition_and_a_word_of_a_text(open_page, word, found):
    page = open_page(f"search.html?q={word}")
    page.locator("#search-results ul.search li").first.wait_for(timeout=20_000)
    page.locator("#search-results p.search-summary", has_text="found").wait_for(timeout=20_000)
    links = page.locator("#search-results ul.search a").all_inner_texts()
    assert any(found in link for link in links), links


def test_keys_lead_to_the_next_page_and_back(open_page):
    page = open_page("steps/11-14.html")
    page.keyboard.press("ArrowRight")
    page.wait_for_url("**/steps/15-18.html")
    page.keyboard.press("ArrowLeft")
    page.wait_for_url("**/steps/11-14.html")


def test_the_demo_is_folded_and_opens_by_the_keyboard(open_page):
    page = open_page("steps/11-14.html")
    summary = page.locator("#step14 details > summary", has_text="demo")
    assert summary.evaluate("(each) => each.parentElement.open") is False
    summary.focus()
    page.keyboard.press("Enter")
    assert summary.evaluate("(each) => each.parentElement.open") is True


CONTRAST = """
(selector) => {
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b]
    .map((c) => ((c /= 255), c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const found = [];
  for (const line of document.querySelectorAll(selector)) {
    let ground = line;
    while (rgb(getComputedStyle(ground).backgroundColor)[3] === 0) ground = ground.parentElement;
    const back = rgb(getComputedStyle(ground).backgroundColor);
    for (const part of [line, ...line.querySelectorAll("span")]) {
      if (!part.textContent.trim()) continue;
      const ink = rgb(getComputedStyle(part).color);
      const [a, b] = [light(ink), light(back)];
      found.push((Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05));
    }
  }
  return Math.min(...found);
}
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("lines", ["ins", "del", "span[data-n]"])
def test_code_can_be_read(open_page, scheme, lines):
    """The ratio of contrast that WCAG AA asks for is 4.5; context is dim, yet not below it."""
    page = open_page("steps/11-14.html", color_scheme=scheme)
    assert page.evaluate(CONTRAST, f".diff {lines}") >= 4.5


def test_a_page_prints_its_code_in_full(open_page):
    page = open_page("steps/11-14.html")
    page.emulate_media(media="print")
    cut = "(pre) => pre.scrollWidth > pre.clientWidth + 1"
    assert not [1 for pre in page.locator("#step11 .diff pre").all() if pre.evaluate(cut)]
    assert page.locator(".copy").first.is_hidden()
