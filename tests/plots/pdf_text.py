"""The text of a PDF that Chromium printed: its strings of glyphs, by the ToUnicode tables of its fonts."""

import re
import unicodedata
import zlib

OBJECT = re.compile(rb"(?:^|\n)(\d+) 0 obj\n(.*?)\nendobj", re.DOTALL)
STREAM = re.compile(rb"stream\n(.*)\nendstream", re.DOTALL)
CHARACTERS = re.compile(rb"<(\w+)> <(\w+)>\n")
RANGES = re.compile(rb"<(\w+)> <(\w+)> <(\w+)>\n")
SHOWN = re.compile(rb"/F(\d+) \S+ Tf|<(\w+)>")


def pages_and_text(pdf: bytes) -> tuple[int, str]:
    """The number of pages, and all that stands on them, without spaces: a line is many strings. Skia names the font of
    object N /FN, and writes glyphs as hexadecimal strings."""
    objects = {int(number): body for number, body in OBJECT.findall(pdf)}
    fonts = {}
    for number, body in objects.items():
        table = re.search(rb"/ToUnicode (\d+) 0 R", body)
        if table:
            fonts[number] = unicode_of(stream(objects[int(table[1])]))
    text = "".join(shown(stream(body), fonts) for body in objects.values() if b" Tf" in stream(body))
    text = re.sub(r"\s", "", unicodedata.normalize("NFKC", text))  # ligatures too
    return sum(b"/Type /Page\n" in body for body in objects.values()), text


def stream(body: bytes) -> bytes:
    found = STREAM.search(body)
    if not found or b"/Image" in body:
        return b""
    return zlib.decompress(found[1]) if b"FlateDecode" in body else found[1]


def unicode_of(table: bytes) -> dict[int, str]:
    characters = {}
    for block in re.findall(rb"beginbfchar\n(.*?)endbfchar", table, re.DOTALL):
        characters |= {int(glyph, 16): decode(code) for glyph, code in CHARACTERS.findall(block)}
    for block in re.findall(rb"beginbfrange\n(.*?)endbfrange", table, re.DOTALL):
        for first, last, code in RANGES.findall(block):
            for glyph in range(int(first, 16), int(last, 16) + 1):
                characters[glyph] = chr(int(code, 16) + glyph - int(first, 16))
    return characters


def decode(code: bytes) -> str:
    return bytes.fromhex(code.decode()).decode("utf-16-be")


def shown(content: bytes, fonts: dict[int, dict[int, str]]) -> str:
    font, text = {}, []
    for number, glyphs in SHOWN.findall(content):
        if number:
            font = fonts.get(int(number), {})
        else:
            text += [font.get(int(glyphs[i : i + 4], 16), "") for i in range(0, len(glyphs), 4)]
    return "".join(text)
