"""The page around the charts, in a browser: answers, tables, keyboard, phone, dark, and what is drawn when."""

import csv
import io

import pytest
from browser import OPEN_ALL, open_report
from synthetic import COLUMNS, LATER, STEP, describe, rows_of, synthetic_run, write_csv
from support import reported

CLIPBOARD = "Object.defineProperty(navigator, 'clipboard', { value: { writeText: async (text) => { window.copied = text; } } });"
# Drawing all charts takes longer than most tests, of which each has a fresh page: those that look at charts ask for them.
NO_IDLE = "window.requestIdleCallback = () => {};"
ORDER = "rows => rows.filter((row) => row.checkVisibility()).map((row) => row.dataset.variant)"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = describe(synthetic_run(tmp_path_factory.mktemp("page") / "run", lengths=(256, 1024), also=LATER), STEP, COLUMNS["bytes_payload"])
    cell = rows_of(folder / "cells.csv")[0]["cell"]
    samples = [{"cell": cell, "kind": "step", "step_us": 5 + 0.1 * number} for number in range(40)]
    write_csv(folder / "samples.csv", list(samples[0]), samples)
    reported(folder)
    return folder


@pytest.fixture(scope="module")
def opened(browser, folder):
    page, complaints = open_report(browser, folder, CLIPBOARD + NO_IDLE)
    yield page
    assert complaints == []


@pytest.fixture
def table(opened):
    """The table of a fresh page."""
    opened.mouse.move(0, 0)
    opened.reload()
    return opened.locator("#decision")


def choose_point_of(page, row):
    page.locator("#point").select_option(row.evaluate("row => row.closest('[data-point]').dataset.point"))


def shown_rows(table):
    return table.locator("tr[data-cell]").evaluate_all(ORDER)


def test_a_heading_sorts_every_sweep_point(table):
    before = shown_rows(table)
    heading = table.locator("th", has_text="time / ").first
    for direction, reverse in (("ascending", False), ("descending", True)):
        heading.locator("button").click()
        assert heading.get_attribute("aria-sort") == direction
        values = table.locator("tr[data-cell]:visible").evaluate_all("rows => rows.map((row) => row.cells[1].dataset.value)")
        known = [float(value) for value in values if value]
        assert len(known) > 3 and known == sorted(known, reverse=reverse)
        assert [float(value or "nan") for value in values[: len(known)]] == known  # missing values come last
    heading.locator("button").click()
    assert heading.get_attribute("aria-sort") == "none" and shown_rows(table) == before


def test_the_keyboard_sorts_and_opens(opened, table):
    heading = table.locator("th", has_text="bytes per token").first
    heading.locator("button").focus()
    opened.keyboard.press("Enter")
    assert heading.get_attribute("aria-sort") == "ascending"
    opened.keyboard.press("Space")
    assert heading.get_attribute("aria-sort") == "descending"
    row = table.locator("tr[data-cell]").first
    row.locator("button.open").focus()
    opened.keyboard.press("Enter")
    assert row.locator("button.open").get_attribute("aria-expanded") == "true"
    assert table.locator("tr.opened").count() == 1
    opened.keyboard.press("Enter")
    assert table.locator("tr.opened").count() == 0


def test_the_meaning_of_a_column_shows_for_pointer_and_keyboard(opened, table):
    heading = table.locator("th", has_text="time / ").first
    tip = heading.locator(".tip")
    assert not tip.is_visible()
    heading.locator("button").focus()
    assert tip.is_visible() and "step_p50_us [us]: append + <view> + attend" in tip.inner_text()
    assert heading.locator("button").get_attribute("aria-description") == tip.inner_text()
    opened.locator("h1").click()
    assert not tip.is_visible()
    heading.hover()
    assert tip.is_visible()


def test_search_and_filters_narrow_the_rows(opened, table):
    tools = opened.locator(".tools[data-table=decision]")
    tools.locator("input[type=search]").fill("Q8_0")
    shown = shown_rows(table)
    assert shown and all("q8_0" in name for name in shown)
    assert tools.locator("output").inner_text().startswith(f"{len(shown)} of ")
    tools.locator("input[type=search]").fill("")
    tools.locator("select[data-facet=placement]").select_option("doubling")
    tools.locator("select[data-facet=codec]").select_option("f32")
    assert set(shown_rows(table)) == {"doubling/f32/full", "doubling(read=copy)/f32/full"}
    tools.locator("select[data-facet=placement]").select_option("")
    tools.locator("select[data-facet=codec]").select_option("")
    tools.locator("select[data-facet=status]").select_option("out of memory")
    choose_point_of(opened, table.locator('tr[data-status="out of memory"]').first)
    assert shown_rows(table) == ["paged(block=16)/out_of_memory"]


def test_limits_narrow_the_rows(opened, table):
    tools = opened.locator(".tools[data-table=decision]")
    everything = shown_rows(table)
    for name in ("error", "bytes", "bits"):
        facts = table.locator("tr[data-cell]:visible").evaluate_all(f"rows => rows.map((row) => Number(row.dataset.{name} ?? NaN))")
        most = sorted(set(facts))[1]
        tools.locator(f"[data-most={name}]").fill(f"{most!r}")
        assert 0 < len(shown_rows(table)) < len(everything)
        assert shown_rows(table) == [row for row, fact in zip(everything, facts) if fact <= most]
        tools.locator(f"[data-most={name}]").fill("")
    assert shown_rows(table) == everything


def test_the_pareto_front_is_marked(opened, table):
    colours = "rows => rows.map((row) => getComputedStyle(row.cells[0]).backgroundColor)"
    before = table.locator("tr[data-front=front]:visible").evaluate_all(colours)
    opened.locator("[data-mark=front]").check()
    after = table.locator("tr[data-front=front]:visible").evaluate_all(colours)
    assert before and all(a != b for a, b in zip(before, after))


def test_rows_are_copied_as_csv_and_as_markdown(opened, table):
    tools = opened.locator(".tools[data-table=decision]")
    tools.locator("input[type=search]").fill("doubling/f32")
    tools.locator("[data-copy=csv]").click()
    rows = list(csv.DictReader(io.StringIO(opened.evaluate("window.copied"))))
    assert len(rows) == len(shown_rows(table)) == 1
    assert {row["variant"] for row in rows} == {"doubling/f32/full"}
    assert float(rows[0]["step_p50_us"]) > 0 and rows[0]["bytes_payload"].isdigit()
    tools.locator("[data-copy=markdown]").click()
    lines = opened.evaluate("window.copied").splitlines()
    assert lines[0].startswith("| variant | time / contiguous f32 median time, ± half of its 95 % interval | bytes per token |") and set(lines[1]) == set("|-: ")
    assert any(line.startswith("| doubling f32 | ") for line in lines)
    assert len({line.count("|") for line in lines}) == 1
    assert f"copied {len(rows)} rows" in tools.locator("output").inner_text()


def test_a_row_opens_its_command_its_samples_and_all_that_was_measured(opened, table):
    row = table.locator("tr[data-cell]").first
    index = row.get_attribute("data-cell")
    row.locator("button.open").click()
    inside = table.locator("tr.opened")
    assert inside.locator("pre").inner_text() == opened.evaluate(f"cells.commands[{index}]")
    inside.locator("button", has_text="Copy the command").click()
    assert opened.evaluate("window.copied").startswith("./kvlab run ")
    inside.locator("summary").click()
    assert "payload" in inside.locator("dl").inner_text() and "bytes" in inside.locator("dl").inner_text()
    sampled = table.locator(f'tr[data-cell="{opened.evaluate("Object.keys(cells.samples)[0]")}"]')
    if sampled.get_attribute("data-cell") != index:
        choose_point_of(opened, sampled)
        sampled.locator("button.open").click()
    label = table.locator("tr.opened svg.samples").get_attribute("aria-label")
    assert label == "step: 40 samples, 5.00 µs to 8.90 µs, median 6.95 µs"


def test_the_menu_shows_another_point(opened, table):
    assert opened.locator(".sentence:visible").count() == table.locator("table:visible").count() == 1
    first = opened.locator(".sentence:visible").inner_text()
    last = opened.locator("#point option").last.get_attribute("value")
    opened.locator("#point").select_option(last)
    assert opened.locator(".sentence:visible").get_attribute("data-point") == last
    assert opened.locator(".sentence:visible").inner_text() != first
    assert table.locator(".card:visible").get_attribute("data-point") == last


def test_the_badges_say_what_failed_and_why(opened, table):
    badges = opened.locator(".badges")
    assert "1 failed" in badges.inner_text() and "1 out of memory" in badges.inner_text() and "A/A test: 0 of 2 found a difference" in badges.inner_text()
    badges.locator("summary").first.click()
    assert "needs 96 GiB, 7.6 GiB free" in badges.inner_text()


def test_without_scripts_the_first_point_is_answered(browser, folder):
    page, _ = open_report(browser, folder, java_script_enabled=False)
    assert page.locator(".sentence:visible").count() == 1
    assert " is fastest" in page.locator(".sentence:visible").inner_text()
    assert page.locator("#decision tr[data-cell]:visible").count() > 5
    assert page.locator(".picture svg").is_visible()
    assert not page.locator("#point").is_visible()
    picture = page.locator("noscript img").first
    picture.scroll_into_view_if_needed()
    assert picture.bounding_box()["width"] > 300


@pytest.mark.parametrize("width", [390, 1400, 3840])
def test_the_page_never_scrolls_sideways(opened, table, width):
    opened.set_viewport_size({"width": width, "height": 900})
    opened.evaluate("window.drawAll()")
    table.locator("button.open").first.click()
    assert opened.evaluate("document.documentElement.scrollWidth") <= width
    card, verdict = (table.locator(f"{selector}:visible").first.bounding_box() for selector in (".card", "tr[data-cell] .tag"))
    assert verdict["x"] + verdict["width"] <= card["x"] + card["width"], "an opened row pushes the verdict out of view"
    opened.set_viewport_size({"width": 1400, "height": 1000})


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(opened, table, scheme):
    opened.evaluate("window.drawAll()")
    assert opened.locator(".chart select").count() > 0
    opened.emulate_media(color_scheme=scheme)
    low = opened.evaluate(LOW_CONTRAST)
    dark = opened.evaluate("luminance(getComputedStyle(document.body).backgroundColor) < 0.1")
    opened.emulate_media(color_scheme="light")
    assert low == [] and dark == (scheme == "dark")


def test_a_screen_reader_finds_its_way(opened, table):
    levels = opened.evaluate("[...document.querySelectorAll('h1, h2, h3, h4')].map((h) => Number(h.tagName[1]))")
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(levels, levels[1:]))
    assert opened.locator("th:not([scope])").count() == 0
    assert opened.evaluate("[...document.querySelectorAll('figure')].every((f) => f.ariaLabel || document.getElementById(f.getAttribute('aria-labelledby')).textContent)")
    unnamed = "[...document.querySelectorAll('.scroll, .chart')].filter((e) => !e.ariaLabel || e.tabIndex !== 0).length"
    assert opened.evaluate(unnamed) == 0
    opened.keyboard.press("Tab")
    skip = opened.locator("a.skip")
    assert skip.evaluate("link => link === document.activeElement && link.getBoundingClientRect().left >= 0")
    outline = "link => parseFloat(getComputedStyle(link).outlineWidth)"
    assert skip.evaluate(outline) >= 2


def test_a_link_to_a_column_opens_its_meaning(opened, table):
    assert not opened.locator("#column-step_p50_us").is_visible()
    opened.locator("figcaption a[href='#column-step_p50_us']").first.click()
    opened.locator("#column-step_p50_us").wait_for(state="visible", timeout=60000)


def test_charts_are_drawn_when_they_come_near(browser, folder):
    page, complaints = open_report(browser, folder, NO_IDLE)
    page.evaluate(OPEN_ALL)
    first, *_, last = page.evaluate("Object.keys(specs)")
    page.locator(f"#{first}").scroll_into_view_if_needed()
    page.locator(f"#chart-{first} :is(svg, canvas).marks").wait_for(timeout=60000)
    assert last not in page.evaluate("Object.keys(window.views)")
    page.locator(f"#{last}").scroll_into_view_if_needed()
    page.locator(f"#chart-{last} :is(svg, canvas).marks").wait_for(timeout=60000)
    assert complaints == []


def test_the_others_are_drawn_when_the_browser_is_idle(browser, folder):
    page, complaints = open_report(browser, folder)
    page.wait_for_function("undrawn().length === 0 && Object.keys(window.views).length > 2", timeout=60000)
    closed = page.locator("details.chapter:not([open]) .chart").count()
    assert closed > 0 and page.evaluate("Object.keys(window.views).length + " + str(closed) + " === Object.keys(specs).length")
    assert complaints == []


# Texts outside of drawings whose contrast with the nearest background below is under 4.5 to 1.
LOW_CONTRAST = """() => {
  window.luminance = (colour) => {
    const [r, g, b] = colour.match(/[\\d.]+/g).map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (e) => { for (; e; e = e.parentElement) {
    const colour = getComputedStyle(e).backgroundColor;
    if (colour !== "rgba(0, 0, 0, 0)") return colour;
  } return "rgb(255, 255, 255)"; };
  const low = new Set();
  for (const e of document.querySelectorAll("main *")) {
    const text = e.matches("select, input") || [...e.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!text || e.closest("svg, option, script, noscript") || !e.checkVisibility()) continue;
    const [a, b] = [getComputedStyle(e).color, behind(e)].map(luminance).sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) low.add(`${e.tagName}.${e.className} ${e.textContent.slice(0, 30)}`);
  }
  return [...low];
}"""
