"""Pictures for a paper: which files, how wide, in which font; and the script that reports draw their charts with, kept from one to the next."""

import gzip
import re

import pytest
import vega
import vl_convert
from pictures import pixels
from support import refused, reported
from synthetic import MANY, synthetic_run


@pytest.fixture(scope="module")
def figures(tmp_path_factory):
    folder = synthetic_run(tmp_path_factory.mktemp("paper") / "run", lengths=(256, 512), variants=MANY)
    reported(folder, "--figures", "pdf,svg", "--figure-width", "84mm", "--figure-font", "8pt")
    return folder / "figures"


def test_only_the_formats_asked_for_are_written(figures):
    assert {path.suffix for path in figures.iterdir()} == {".pdf", ".svg"}
    assert (figures / "memory.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize("name", ["memory", "latency", "pareto"])
def test_a_picture_is_as_wide_as_the_column(figures, name):
    svg = (figures / f"{name}.svg").read_text()
    assert float(re.search(r'width="([\d.]+)"', svg)[1]) == pytest.approx(84 / 25.4 * 96, abs=3)
    box = re.search(rb"/MediaBox ?\[0 0 ([\d.]+)", (figures / f"{name}.pdf").read_bytes())
    assert float(box[1]) == pytest.approx(84 / 25.4 * 72, abs=3)


def test_all_text_has_the_size_asked_for(figures):
    sizes = set(re.findall(r'font-size="([\d.]+)px"', (figures / "latency.svg").read_text()))
    assert {round(float(size), 2) for size in sizes} == {round(8 * 96 / 72, 2)}


@pytest.mark.parametrize(("arguments", "complaint"), [
    (["--figures", "gif"], r"kvlab: --figures gif: .*pdf, png, svg.*"),
    (["--figures"], r"kvlab: argument --figures: expected one argument \(--help shows how\)"),
    (["--figure-width", "84"], r"kvlab: --figure-width 84: .*\(mm, cm, in, pt, px\), as in 84mm or 8pt"),
])
def test_a_wrong_option_gets_one_line(tmp_path, arguments, complaint):
    assert re.fullmatch(complaint, refused(tmp_path, *arguments))


def test_lengths_have_units():
    assert pixels("--figure-width", "1in") == 96 and pixels("--figure-font", "12pt") == 16


@pytest.fixture
def kept(tmp_path, monkeypatch):
    path = tmp_path / "folder/vega.js.gz"
    monkeypatch.setattr(vega, "KEPT", path)
    return path


@pytest.fixture
def whole():
    return vl_convert.javascript_bundle(vl_version=vega.VEGALITE)


def test_it_is_put_together_once(kept, whole, monkeypatch):
    assert vega.javascript() == whole
    assert [file.name for file in kept.parent.iterdir()] == [kept.name]
    monkeypatch.delattr(vl_convert, "javascript_bundle")
    assert vega.javascript() == whole


@pytest.mark.parametrize("damage", ["cut off", "empty", "changed", "no gzip"])
def test_a_damaged_file_is_mended(kept, whole, damage):
    good = gzip.compress(whole.encode())
    middle = len(good) // 2
    bad = {
        "cut off": good[:middle],
        "empty": b"",
        "changed": good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :],
        "no gzip": b"alert(1)",
    }[damage]
    kept.parent.mkdir()
    kept.write_bytes(bad)
    assert vega.javascript() == whole
    assert gzip.decompress(kept.read_bytes()).decode() == whole


def test_a_folder_that_cannot_be_written_is_no_error(kept, whole):
    kept.parent.write_text("a file stands in its place")
    assert vega.javascript() == whole
    assert [file.name for file in kept.parent.parent.iterdir()] == ["folder"]
