"""The page of `kvlab reproduce`: what it shows of each claim, its links, its filters, and its width on a phone."""

import pytest
from browser import open_file
from claims import linked, measured_of, write_claims
from claims_markdown import markdown, summary
from synthetic import HOME, write_csv

COMMITTED = HOME / "results/epyc-2core/reproduce"
SHARED = {"source": "007-paper", "title": "007: a paper", "document": "A. Nobody 2024, A Paper, arXiv:2401.00001", "where": "Table 1",
          "replica": "exact", "machine": "no", "kind": "", "reading": "no", "decides": "yes", "note": "", "computed_value": "", "measured_value": ""}  # fmt: skip
SPEED = {"claim": "speed", "check": "measurement", "computed": "", "reason": "", "text": "It is fast", "quote": "21x <b>faster</b>",
         "setting": "concat over doubling, in an abstract way", "how": "measured: a / b", "run": "[run]\nx = 1"}  # fmt: skip
ROWS = [
    SPEED | {"figure": "T=256", "published": "21×", "machine": "yes", "measured": "26.38x (25.42–30.59)", "verdict": "reproduced"},
    SPEED | {"figure": "T=4096", "published": "709×", "measured": "1x (0.9–1.1)", "verdict": "contradicted"},
    {"claim": "size", "figure": "", "check": "closed form", "published": "1 MB", "computed": "1 MB", "measured": "1 MB",
     "verdict": "reproduced", "reason": "", "text": "It is small", "quote": "a traction engine of 1 MB", "setting": "",
     "how": "computed: cache", "run": ""},
]  # fmt: skip


def folder_of_claims(folder, columns=()):
    rows = [{name: value for name, value in {**SHARED, **row}.items() if name not in columns} for row in ROWS]
    folder.mkdir()
    write_csv(folder / "claims.csv", list(rows[0]), rows)
    return folder


def test_addresses_of_a_document_are_links():
    assert linked("X, arXiv:2402.02750") == [("X, ", ""), ("arXiv:2402.02750", "https://arxiv.org/abs/2402.02750")]
    assert linked("see https://a.org/b.html.") == [("see ", ""), ("https://a.org/b.html", "https://a.org/b.html"), (".", "")]
    text = "https://github.com/o/r, file a/b c.md at commit 8e72eef09c"
    assert linked(text) == [(text, "https://github.com/o/r/blob/8e72eef09c/a/b%20c.md")]
    assert linked("no place <b>") == [("no place <b>", "")]


def test_a_value_stands_apart_from_its_interval():
    split = lambda measured, check="measurement": measured_of({"measured": measured, "check": check})
    assert split("26.38x (25.42–30.59)") == ("26.38x", "25.42–30.59")
    assert split("-0.1 nats (-0.2–0.01)") == ("-0.1 nats", "-0.2–0.01")
    assert split("1 MB", "closed form") == ("1 MB", "counted: no interval")
    assert split("yes") == ("yes", "one value: no interval") and split("") == ("–", "")


def test_folders_of_earlier_versions_are_drawn(tmp_path):
    page = write_claims(folder_of_claims(tmp_path / "old", columns=("how", "run", "kind", "reading", "decides")), tmp_path / "old").read_text(encoding="utf-8")
    assert "./kvlab reproduce 007-paper/speed" in page and "measured: a / b" not in page


def test_markdown_counts_verdicts_and_escapes_its_tables():
    rows = [{**SHARED, **row} for row in ROWS]
    rows[1] |= {"published": "<5 %", "reason": "a | b"}
    assert "| T=4096 | \\<5 % | – | 1x (0.9–1.1) | contradicted | measurement | a \\| b |\n" in markdown(rows)
    text = summary(rows)
    assert text.startswith("# Verdicts by source\n\n3 published figures of 2 claims, in 3 checks: 2 reproduced, 1 contradicted. 1 mistake makes the contradicted ones.\n")
    assert text.count("\n| ") == 2 + 3  # a line the source and a line a claim, each under a head
    assert "| 007: a paper | 2 | 1 | It is fast (T=4096: \\<5 %, here 1x (0.9–1.1)) |" in text
    assert "| 007: a paper | It is fast (2 checks) | 21× … \\<5 % | – | 26.38x (25.42–30.59) … 1x (0.9–1.1) |" in text


def test_published_figures_are_counted_and_documents_stand_apart():
    rows = [{**SHARED, **row, "reading": "no", "decides": "yes", "kind": "document"} for row in ROWS]
    rows[1]["decides"] = "no"  # another check of the figure decides
    rows[2] |= {"kind": "paper", "source": "b", "title": "B"}
    text = summary(rows)
    assert text.startswith("# Verdicts by source\n\n**Documents.** 1 published figure of 1 claim, in 2 checks: reproduced.\n")
    assert "**Papers.** 1 published figure of 1 claim, in 1 check: reproduced.\n" in text
    assert "| 007: a paper | 1 |  |\n" in text and "| T=4096 | 709× | – | 1x (0.9–1.1) | contradicted | measurement, decides nothing |" in markdown(rows)


@pytest.fixture(scope="module")
def page(browser, tmp_path_factory):
    """(the page in Chromium without a network, what its console complained of)"""
    folder = folder_of_claims(tmp_path_factory.mktemp("claims") / "run")
    return open_file(browser, write_claims(folder, folder))


def shown(page):
    return page.locator("tr[data-text]:visible td:nth-child(2)").all_inner_texts()


def test_a_claim_shows_quote_setting_source_and_interval(page):
    page, complaints = page
    card = page.locator("article").first
    text = card.inner_text()
    for expected in ("It is fast", "“21x <b>faster</b>”", "Table 1", "Setting: concat over doubling", "26.38x\n25.42–30.59"):
        assert expected in text, expected
    assert card.locator("cite a").get_attribute("href") == "https://arxiv.org/abs/2401.00001"
    assert card.locator("summary").inner_text() == "What was run, and how to check it again"
    assert card.locator("pre").all_text_contents() == ["./kvlab reproduce 007-paper/speed", "measured: a / b", "[run]\nx = 1"]
    assert "counted: no interval" in page.locator("article").nth(1).inner_text()
    assert "Setting: bytes by the closed form" in page.locator("article").nth(1).inner_text()
    assert complaints == []


def test_figures_are_filtered_by_verdict_and_by_words(page):
    page, complaints = page
    button = page.locator("button[data-verdict=contradicted]")
    button.click()
    assert [text.split("\n")[0] for text in shown(page)] == ["T=4096"] and button.get_attribute("aria-pressed") == "true"
    assert page.locator("#shown").inner_text() == "1 of 3 checks"
    button.click()
    for words, figures in (("tract", 1), ("ABSTRACT way", 2), ("paper", 3), ("21x <b>", 2), ("(", 0), ("small", 1)):
        page.locator("#filter").fill(words)
        assert len(shown(page)) == figures, words
    assert page.locator("article:visible").count() == 1
    page.locator("#filter").fill("")
    assert page.locator("#shown").inner_text() == "3 checks" and complaints == []


def test_the_committed_verdicts_need_no_scrolling_to_the_side(browser, tmp_path):
    page, _ = open_file(browser, write_claims(COMMITTED, tmp_path))
    for width in (1440, 900, 390):
        page.set_viewport_size({"width": width, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.locator("table.claims").evaluate_all("tables => tables.filter((t) => t.scrollWidth > t.parentElement.clientWidth).length") == 0
    assert "measured" in page.locator("td[data-label=measured]").first.evaluate("(cell) => getComputedStyle(cell, '::before').content")
