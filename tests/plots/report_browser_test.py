"""The report's charts in a browser without a network: every chart, its tooltips and legends; and what stands in print.

page_browser_test.py looks at the page around them.
"""

import re
import unicodedata

import pytest
from browser import OPEN_ALL, open_report
from figures.list import FIGURES
from pdf_text import pages_and_text
from support import reported
from synthetic import LATER, in_words, synthetic_run

FIGURE_NAMES = [figure.name for figure in FIGURES]
DRAWN = 20  # at least: the synthetic run has no cells for a chart that came later than it


@pytest.fixture(scope="module")
def opened(browser, tmp_path_factory):
    """(the page of a report with every figure, opened from disk in Chromium offline; what its console complained of)"""
    folder = synthetic_run(tmp_path_factory.mktemp("report") / "a run", growth_to=1024, also=LATER, one_thread=True)
    reported(folder)
    page, complaints = open_report(browser, folder)
    page.evaluate(OPEN_ALL)
    page.evaluate("window.drawAll()")
    return page, complaints


def chart_of(page, name):
    if not page.evaluate("(name) => name in window.views", name):
        pytest.skip("the synthetic run has no cells for it")
    chart = page.locator(f"#chart-{name} :is(svg.marks, canvas.marks)")
    chart.scroll_into_view_if_needed()
    return chart


def test_every_figure_is_drawn(opened):
    page, complaints = opened
    drawn = page.evaluate("Object.keys(window.views)")
    assert set(drawn) <= set(FIGURE_NAMES)
    assert len(drawn) >= DRAWN
    for name in drawn:
        marks = page.evaluate(MARKS, name)
        assert len(marks) >= 6, name
        box = page.locator(f"#chart-{name} :is(svg.marks, canvas.marks)").bounding_box()
        assert box["width"] > 400, name
        assert box["height"] > 150, name
    assert complaints == []


@pytest.mark.parametrize("name", FIGURE_NAMES)
def test_tooltips_appear(opened, name):
    page, _ = opened
    chart = chart_of(page, name)
    box = chart.bounding_box()
    x, y = page.evaluate(MARKS, name)[0]
    page.mouse.move(box["x"] + x - 3, box["y"] + y - 2)
    page.mouse.move(box["x"] + x, box["y"] + y, steps=3)
    tooltip = page.locator("#vg-tooltip-element.visible")
    tooltip.wait_for(timeout=60000)
    assert "variant" in tooltip.inner_text()
    assert any(part in tooltip.inner_text() for part in ("contiguous", " f", "recompute("))
    page.mouse.move(0, 0)


# The variants of the heat tables are rows or panels, in no legend.
@pytest.mark.parametrize("name", [name for name in FIGURE_NAMES if not name.startswith("kernels") and name not in ("eval_heads", "sensitivity_layers", "task_depth")])
def test_a_click_in_the_legend_selects(opened, name):
    page, complaints = opened
    chart = chart_of(page, name)
    assert page.evaluate("(name) => window.views[name].data('focus_store').length", name) == 0
    faint_before = page.evaluate(FAINT, name)
    box = chart.bounding_box()
    x, y = page.evaluate(LEGEND_ENTRY, name)
    page.mouse.click(box["x"] + x, box["y"] + y)
    page.evaluate("(name) => window.views[name].runAsync().then(() => null)", name)
    assert page.evaluate("(name) => window.views[name].data('focus_store').length", name) >= 1  # one a panel
    assert page.evaluate(FAINT, name) > faint_before
    page.mouse.click(box["x"] + 5, box["y"] + 5)
    page.evaluate("(name) => window.views[name].runAsync().then(() => null)", name)
    assert page.evaluate(FAINT, name) == faint_before
    assert complaints == []


def test_the_length_menu_redraws(opened):
    page, _ = opened
    title = page.locator("#chart-pareto svg .role-title-text", has_text="tokens")
    assert "4,096" in title.text_content()
    page.locator("#chart-pareto select").select_option("256")
    page.evaluate("window.views.pareto.runAsync().then(() => null)")
    assert "256" in title.text_content()


def test_the_table_shows_everything_escaped(opened):
    page, _ = opened
    table = page.locator("#answers").text_content()  # of all sweep points
    for expected in (
        "ambiguous",
        "A/A test",
        "out of memory",
        "needs 96 GiB",
        "<script>alert(1)</script> group",
    ):
        assert expected in table
    assert "Synthetic CPU <b>0</b>" in page.locator("main").inner_text()
    assert page.locator("main b").count() == 0


def test_predictions_have_a_table_of_their_own(opened):
    page, _ = opened
    predictions = page.locator("table#predicted").text_content()
    for expected in ("quality · 1K tokens", "recall · distance 400", "worse", "baseline"):
        assert expected in predictions
    assert "Tiny models exaggerate the loss of quality" in page.locator("main").inner_text()
    for name in ("quality_kl", "quality_loss", "kl_position", "recall", "recall_budget", "stream"):
        assert "Tiny models exaggerate the loss of quality" in page.locator(f"#{name} figcaption").inner_text()


def test_texts_stand_side_by_side_and_are_marked_where_they_differ(opened):
    page, _ = opened
    rows = page.locator("table.texts tbody tr")
    assert rows.count() == 2
    cells = [rows.nth(row).locator("td").all_text_contents() for row in range(2)]
    assert "differs never" in cells[0][0] and cells[0][1] == cells[0][2] == " a time <b>there</b>\nwas"
    assert "differs after 2 tokens: “they & all”, the full cache “<b>there</b> was”" in cells[1][0]
    assert rows.nth(1).locator("mark").all_text_contents() == ["they & all", "<b>there</b>\nwas"]
    assert "…<i>Once</i> upon" in page.locator("details.card summary").first.inner_text()


def test_print_has_every_chart_and_every_row_that_is_shown(opened):
    page, complaints = opened
    opened_before = page.locator("details[open]").count()
    _, text = pages_and_text(page.pdf(prefer_css_page_size=True))
    rows = page.locator("tr[data-cell]:visible")
    variants = set(rows.evaluate_all("rows => rows.map((row) => row.dataset.variant)"))
    assert len(variants) > 15
    for variant in variants:
        written = re.sub(r"\s", "", in_words(variant))
        in_rows = page.locator(f'tr[data-variant="{variant}"]:visible').count()
        assert text.count(written) >= in_rows, variant
    texts = page.locator("details.card[open] td").all_text_contents()
    assert texts and all(re.sub(r"\s", "", words) in text for words in texts)
    assert page.locator("details[open]").count() == opened_before
    titles = page.locator(".chart svg .role-title-text").all_text_contents()
    assert len(titles) >= DRAWN - 2  # a large chart is pixels
    for words in titles:
        assert unicodedata.normalize("NFKC", re.sub(r"\s", "", words)) in text
    assert complaints == []


# Walk Vega's scenegraph: its items carry their position, whichever way they are drawn.
WALK = """
  const walk = (item, x, y, visit) => {
    if (item.marktype) { for (const child of item.items) visit(item, child, x, y), walk(child, x, y, visit); }
    else if (item.items) for (const mark of item.items) walk(mark, x + (item.x || 0), y + (item.y || 0), visit);
  };
  const view = window.views[name], pad = view.padding(), found = [];
  const origin = [view.origin()[0] + pad.left, view.origin()[1] + pad.top];
"""
MARKS = f"""(name) => {{ {WALK}
  walk(view.scenegraph().root, origin[0], origin[1], (mark, item, x, y) => {{
    if (mark.role != "mark" || !item.tooltip || !["symbol", "rect"].includes(mark.marktype)) return;
    found.push([x + item.x + (item.width || 0) / 2, y + item.y + (item.height || 0) / 2]);
  }});
  return found.reverse();  // the topmost first
}}"""
FAINT = f"""(name) => {{ {WALK}
  walk(view.scenegraph().root, 0, 0, (mark, item) => {{
    if (mark.role == "mark" && item.opacity < 0.1) found.push(item);
  }});
  return found.length;
}}"""
LEGEND_ENTRY = f"""(name) => {{ {WALK}
  walk(view.scenegraph().root, origin[0], origin[1], (mark, item, x, y) => {{
    const within = {{ center: 0, right: -10 }}[item.align] ?? 10;  // inside of the text, however narrow it is
    if (mark.role == "legend-label" || mark.name?.startsWith("names")) found.push([x + item.x + within + (item.dx || 0), y + item.y + (item.dy || 0)]);
  }});
  return found[0];
}}"""
