"""`kvlab site`: what its pages hold, and what they do in a browser without a network."""

import re
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from browser import open_file
from synthetic import MANY, edit, in_words, on_hosts, rows_of, synthetic_run, write_csv

LENGTHS = (4096, 32768)
WIDE = {"viewport": {"width": 1400, "height": 1000}}
PHONE = {"viewport": {"width": 390, "height": 800}}
CLAIM = {"source": "003", "claim": "update", "figure": "512", "verdict": "contradicted", "published": "4x", "measured": "2x", "computed": "",
         "reason": "slower", "check": "measurement"}  # fmt: skip


def site(*results, out) -> tuple[int, str]:
    from publish import main  # conftest.py says where

    with redirect_stdout(StringIO()), redirect_stderr(StringIO()) as error:
        return main([*map(str, results), "--out", str(out)]), error.getvalue()


def published(*results, out) -> Path:
    assert site(*results, out=out) == (0, "")
    return out


def refused(*results, out) -> str:
    """The line that it ends with."""
    code, error = site(*results, out=out)
    assert code == 2 and error.count("\n") == 1
    return error


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Two machines; one's tree was dirty, the other's A/A tests failed."""
    top = tmp_path_factory.mktemp("results")
    for machine, config in (("fast", "seq_len"), ("slow", "seq_len"), ("slow", "other")):
        env = {"config": {"name": config}, "kvlab": {"git_commit": "0123456789abcdef", "git_dirty": machine == "fast"}}
        synthetic_run(top / machine / config, variants=MANY, lengths=LENGTHS, env=env)
    apart = {"ratio_p50": "1.2", "ratio_ci_low": "1.1", "ratio_ci_high": "1.3"}
    edit(top / "slow" / "other", lambda row: row | (apart if row["verdict"] == "aa_test" else {}))
    (top / "slow" / "reproduce").mkdir()
    write_csv(top / "slow" / "reproduce" / "claims.csv", list(CLAIM), [CLAIM])
    return top


@pytest.fixture(scope="module")
def made(results, tmp_path_factory):
    return published(results, out=tmp_path_factory.mktemp("site") / "out")


@pytest.fixture
def opened(browser, made):
    """A function that opens a page; what its console complains of fails the test."""
    complaints: list[list[str]] = []

    def open_page(name: str, context=WIDE):
        page, said = open_file(browser, made / name, accept_downloads=True, **context)
        complaints.append(said)
        return page

    yield open_page
    assert sum(complaints, []) == []


def texts(page, selector: str) -> list[str]:
    return page.locator(selector).evaluate_all("all => all.filter((e) => e.checkVisibility()).map((e) => e.textContent)")


def test_there_is_a_page_for_everything_and_no_link_is_dead(made):
    assert {page.name for page in (made / "machines").iterdir()} == {"fast.html", "slow.html"}
    assert len(list((made / "variants").iterdir())) == len(MANY) + 3  # and those that are not ok
    for page in made.rglob("*.html"):
        for target in re.findall(r'(?:href|src)="([^"#:]+)"', page.read_text()):
            assert (page.parent / target).resolve().exists(), (page, target)


def test_raw_files_are_those_of_the_folders(made, results):
    for folder in (results / "fast" / "seq_len", results / "slow" / "other"):
        raw = made / "raw" / folder.parent.name / folder.name
        for name in ("cells.csv", "env.json"):
            assert (raw / name).read_bytes() == (folder / name).read_bytes()


def test_failed_aa_tests_and_dirty_trees_are_shown(opened):
    page = opened("index.html")
    trust = {row.split("\n")[0]: row for row in page.locator("#folders ~ .card").first.locator("tbody tr").all_inner_texts()}
    by_folder = {name.split("\t")[0]: text for name, text in trust.items()}
    assert "dirty tree" in by_folder["fast/seq_len"] and "dirty tree" not in by_folder["slow/seq_len"]
    assert "A/A test failed: 2 of 2" in by_folder["slow/other"] and "A/A test failed" not in by_folder["slow/seq_len"]
    page = opened("machines/slow.html")
    page.locator("#search").fill("slow/other A/A")
    assert "A/A failed" in texts(page, "#table tbody tr")[0]


def test_two_clicks_answer_which_codec_is_fastest(opened, results):
    page = opened("index.html")
    page.locator("#machines ~ .card a", has_text="fast").first.click()
    page.locator("#lengths button", has_text="32K").click()
    rows = [row for row in rows_of(results / "fast" / "seq_len" / "cells.csv") if row["seq_len"] == "32768" and row["status"] == "ok"
            and row["experiment"] == "decode" and row["verdict"] != "aa_test" and row["variant"].endswith("/full")]  # fmt: skip
    best = min(rows, key=lambda row: float(row["step_p50_us"]))
    told = page.locator("#told").inner_text()
    assert in_words(best["variant"]) in told and "per token" in told
    codecs = page.locator("#codecs tbody th").all_inner_texts()
    assert codecs[0] == best["variant"].split("/")[1].partition("(")[0]
    assert len(codecs) == len({row["variant"].split("/")[1] for row in rows})


def test_cells_are_searched_filtered_and_sorted(opened):
    page = opened("machines/slow.html")
    everything = page.evaluate("kvlab.cells.length")
    page.locator("#search").fill("q4_0 ring slow/seq_len")
    found = texts(page, "#table tbody th")
    assert found and all("q4_0" in name and "ring" in name for name in found)
    page.locator("#search").fill("")
    page.locator("#length").select_option("32768")
    assert 0 < int(page.locator("#shown").inner_text().split()[0]) < everything
    for direction in (1, -1):
        page.locator("#table thead th", has_text="time, p50").locator("button").click()
        expected = page.evaluate("""direction => kvlab.cells.filter((c) => c.seq_len === 32768 && c.time !== null)
            .sort((a, b) => direction * (a.time - b.time)).map((c) => timeText(c.time))""", direction)  # fmt: skip
        shown = page.evaluate("[...document.querySelectorAll('#table tbody tr td:nth-child(5)')].map((td) => td.firstChild.textContent)")
        assert len(set(expected)) > 10 and shown[: len(expected)] == expected


def test_tables_of_the_overview_sort_and_search(opened):
    page = opened("index.html")
    heading = page.locator("#machines ~ .card").first.locator("th", has_text="cells")
    heading.locator("button").click()
    assert heading.get_attribute("aria-sort") == "ascending"
    assert page.locator("#machines ~ .card").first.locator("tbody th").all_inner_texts() == ["fast", "slow"]
    heading.locator("button").click()
    assert page.locator("#machines ~ .card").first.locator("tbody th").all_inner_texts() == ["slow", "fast"]
    page.locator("input.search").fill("kivi full")
    found = texts(page, "table.sortable tbody tr")
    assert found and all("kivi" in line and "full" in line for line in found)
    # No table without a match stands above them, nor its heading.
    assert texts(page, "h2") == [heading for heading in ("Questions", "Variants") if heading != "Questions" or any("?" in line for line in found)]
    page.locator("input.search").fill("")
    assert texts(page, "h2") == ["Questions", "Machines", "Configs", "Folders", "Variants"]


def test_a_question_has_the_reports_answer(opened, results):
    from data import load_run
    from decision import points
    from tables import CELL

    page = opened("index.html")
    page.locator("#questions + .card a", has_text="step fastest").click()
    longest = points((run := load_run(results / "fast" / "seq_len", "run")).cells.with_row_index(CELL), [run])[0]
    said = page.locator("#\\30 + .trust + .card details p").first.inner_text()
    assert said.strip() == " ".join(longest.sentences).replace("`", "") and "fastest" in said
    shown = page.locator("#\\30 + .trust + .card details").first.locator("tbody th").all_inner_texts()
    assert [name.split("\n")[0] for name in shown] == [line.name for line in longest.lines]
    assert "an error of at most 0.2" in page.locator("main").inner_text()
    assert page.locator("details").count() >= 3  # of each folder its own


def test_ratios_to_two_baselines_are_not_compared(tmp_path, browser):
    """The fastest of a place where two sweeps have a baseline each is the fastest by its time."""
    folder = synthetic_run(tmp_path / "results" / "fast" / "run", variants=MANY, lengths=(4096,))
    rows = rows_of(folder / "cells.csv")
    timed = [row for row in rows if row["experiment"] == "decode" and row["status"] == "ok" and row["verdict"] != "aa_test" and row["variant"].endswith("/full")]
    slow, fast = (max(timed, key=lambda row: float(row["step_p50_us"])), min(timed, key=lambda row: float(row["step_p50_us"])))
    fast.update(verdict="slower", versus="contiguous/f16", ratio_p50="1.5", ratio_ci_low="1.4", ratio_ci_high="1.6")
    slow.update(verdict="faster", versus="contiguous", ratio_p50="0.1", ratio_ci_low="0.09", ratio_ci_high="0.11")
    write_csv(folder / "cells.csv", list(rows[0]), rows)
    page, said = open_file(browser, published(tmp_path / "results", out=tmp_path / "out") / "machines" / "fast.html", **WIDE)
    assert f"with {in_words(fast['variant'])}." in page.locator("#told").inner_text() and said == []


def test_a_row_says_where_its_number_comes_from(opened, made):
    page = opened("machines/slow.html")
    page.locator("#search").fill("slow/other contiguous/f16/full")
    page.locator("#table .open").first.click()
    page.wait_for_function("document.querySelector('.opened pre')?.textContent.startsWith('./kvlab run')")
    inside = page.locator(".opened").inner_text()
    assert "slow/other" in inside and "0123456789abcdef" in inside and "other/config.toml" in inside and "contiguous/f16" in inside
    with page.expect_download() as download:
        page.locator(".opened a", has_text="cells.csv").click()
    assert Path(download.value.path()).read_bytes() == (made / "raw" / "slow" / "other" / "cells.csv").read_bytes()


def test_the_front_is_that_of_the_cells(opened):
    page = opened("machines/fast.html")
    page.locator("#lengths button", has_text="4K").click()
    page.locator("#y").select_option("error")
    page.wait_for_function("kvlab.view && document.querySelectorAll('#chart .mark-symbol path').length > 0")
    drawn = page.evaluate("points('bytes_per_token', 'error').map((r) => [r.x, r.y, r.front])")
    assert len(drawn) == len(MANY)
    for x, y, front in drawn:
        beaten = any(a <= x and b <= y and (a < x or b < y) for a, b, _ in drawn)
        assert front == (not beaten)
    assert page.locator("#chart .mark-symbol path").count() >= len(drawn)


def test_times_of_two_folders_are_never_one_chart(opened):
    page = opened("machines/slow.html")
    page.locator("#lengths button", has_text="4K").click()
    page.wait_for_function("kvlab.view")
    assert page.evaluate("new Set(points('bytes_per_token', 'time').map((r) => r.folder)).size") == 1
    page = opened("configs/seq_len.html")
    page.wait_for_function("kvlab.view && document.querySelectorAll('#chart .mark-symbol').length > 1")
    assert {"fast/seq_len", "slow/seq_len"} <= set(page.locator("#chart text").all_text_contents())


def test_verdicts_of_claims_by_machine(opened):
    page = opened("index.html")
    page.locator("nav a", has_text="Verdicts").click()
    assert "003/update" in page.locator("tbody th").inner_text()
    assert page.locator("tbody .tag").inner_text() == "contradicted"


@pytest.mark.parametrize("name", ["index.html", "machines/slow.html", "configs/other.html", "claims.html", "questions/which-cache-makes-a-step-fastest.html"])
def test_a_phone_scrolls_down_and_not_sideways(opened, name):
    page = opened(name, PHONE)
    page.wait_for_function("!window.kvlab.page || kvlab.view")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_print_leaves_out_what_cannot_be_pressed(opened):
    page = opened("machines/fast.html")
    page.wait_for_function("kvlab.view")
    page.emulate_media(media="print")
    assert not page.locator("#search").is_visible() and not page.locator("nav").is_visible()
    assert page.locator("#table tbody tr").first.is_visible() and page.locator("#told").is_visible()
    assert page.locator("#chart svg.marks").is_visible()
    assert page.pdf().startswith(b"%PDF")


def test_ten_thousand_cells_open_in_a_second(browser, results, tmp_path):
    """Not timed: what takes the time is how much is loaded and laid out."""
    folder = synthetic_run(tmp_path / "big" / "wide", variants=MANY, lengths=tuple(2**p for p in range(6, 16)), batches=tuple(range(1, 35)))
    assert len(rows_of(folder / "cells.csv")) > 10_000
    page, _ = open_file(browser, published(tmp_path / "big", out=tmp_path / "out") / "machines" / "big.html", **WIDE)
    assert page.evaluate("kvlab.cells.length") > 10_000
    assert page.locator("#table tbody tr").count() <= 150
    assert (tmp_path / "out" / "data" / "machines-big.js").stat().st_size < 5e6
    assert (tmp_path / "out" / "index.html").stat().st_size < 1e5


def test_a_merged_run_is_shown_host_by_host(results, tmp_path):
    folder = on_hosts(synthetic_run(tmp_path / "merged", lengths=(256,)), "cells.csv")
    assert {page.name for page in (published(folder, out=tmp_path / "out") / "machines").iterdir()} == {"n1.html", "n2.html"}


@pytest.mark.parametrize("results, out, part", [("nowhere", "out", "no such folder"), (".", "out", "no results folder is here or below"), (".", "", "--out is empty")])
def test_what_cannot_be_is_refused(tmp_path, monkeypatch, results, out, part):
    monkeypatch.chdir(tmp_path)
    assert part in refused(tmp_path / results, out=out)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["mine.txt", "data/mine.txt"])
def test_no_folder_of_others_is_written_to(results, tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    assert "other files" in refused(results, out=tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / name]


def test_an_earlier_site_is_replaced_or_stays_whole(results, tmp_path, monkeypatch):
    out = tmp_path / "out"
    published(results / "fast", out=out)
    published(results, out=out)
    whole = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert out / "machines" / "slow.html" in whole

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("website.build.write_claims_page", full)
    for to in (out, tmp_path / "new"):
        assert refused(results / "fast", results / "slow", out=to) == f"kvlab: {to}: cannot be written (No space left on device)\n"
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == whole
    assert not (tmp_path / "new").exists()


def test_what_links_point_to_is_not_published(tmp_path):
    folder = synthetic_run(tmp_path / "results" / "fast" / "run", lengths=(256,))
    (tmp_path / "secret").write_text("secret")
    (folder / "benchmark.json").symlink_to(tmp_path / "secret")
    assert "benchmark.json: a link" in refused(tmp_path / "results", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_only_chosen_folders_are_published(tmp_path):
    """No link's folder, none of runs that stay here, no earlier site."""
    top = tmp_path / "results"
    for name in ("fast/run", "local/run", "elsewhere"):
        synthetic_run((tmp_path if name == "elsewhere" else top) / name, lengths=(256,))
    (top / "link").symlink_to(tmp_path / "elsewhere")
    for _ in range(2):
        published(top, out=top / "site")
    assert {path.name for path in (top / "site" / "raw").iterdir()} == {"fast"}
    published(top / "local", out=tmp_path / "local")
