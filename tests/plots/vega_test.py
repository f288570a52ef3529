"""The script that reports draw their charts with is kept from one report to the next."""

from __future__ import annotations

import gzip

import pytest
import vega
import vl_convert


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
