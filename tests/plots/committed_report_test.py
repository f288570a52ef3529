"""Reports of committed runs at a phone's, a laptop's and a wide screen's width, and in print: nothing is cut, squashed or laid
over something else."""

import shutil

import pytest
from browser import open_report
from pdf_text import pages_and_text
from support import reported
from synthetic import HOME

COMMITTED = HOME / "results/epyc-2core"
CUT = "() => [...document.querySelectorAll('.chart')].filter((chart) => chart.scrollWidth > chart.clientWidth).map((chart) => chart.id)"
NARROW = "() => [...document.querySelectorAll('figure:not(.wide) .chart')].filter((chart) => chart.querySelector('.marks')?.getBoundingClientRect().width < 0.6 * Math.min(chart.clientWidth, 1100)).map((chart) => chart.id)"
BOX = "(selector) => { const b = document.querySelector(selector).getBoundingClientRect(); return [b.left, b.right, b.top, b.bottom]; }"


@pytest.fixture(scope="module", params=["quickstart", "growth", "real"])
def folder(request, tmp_path_factory):
    made = tmp_path_factory.mktemp("committed") / request.param
    shutil.copytree(COMMITTED / request.param, made, ignore=shutil.ignore_patterns("figures", "*.html"))
    reported(made, "--figures", "svg")
    return made


@pytest.mark.parametrize("width", [390, 1280, 1920])
def test_nothing_is_cut(browser, folder, width):
    page, complaints = open_report(browser, folder, viewport={"width": width, "height": 1000})
    page.evaluate("window.drawAll()")
    assert page.locator(".chart svg .role-title-text").count() > 0
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if width > 390:  # on a phone a chart scrolls
        assert page.evaluate(CUT) == []
    for figure in page.locator(".figures > figure").all() if width == 1920 else []:
        chapter = figure.locator("..").bounding_box()
        alone = figure.evaluate("(f) => f.parentElement.children.length === 1")
        if chapter and alone:
            assert figure.bounding_box()["width"] > 0.9 * chapter["width"]
    assert page.evaluate(NARROW) == []  # no lone chart leaves half of its card empty
    assert complaints == []


def test_print_is_short_and_legible(browser, folder):
    page, _ = open_report(browser, folder, viewport={"width": 1047, "height": 718})
    pages, _ = pages_and_text(page.pdf(prefer_css_page_size=True))
    assert pages <= 4
    page.emulate_media(media="print")
    table, picture = (page.evaluate(BOX, selector) for selector in ("#decision .card:not([hidden]) table", ".picture svg"))
    assert table[1] <= picture[0] + 1, "the table lies over the picture"
    names = page.locator("#decision .card:not([hidden]) tbody th[scope=row]").evaluate_all("all => all.map((th) => [th.clientWidth, th.clientHeight])")
    assert names and all(width > 120 and height < 60 for width, height in names)
