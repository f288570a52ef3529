"""Files, functions and pages that can be read in one piece."""

import pytest
from exceptions import SIZES
from sources import PROJECT, blocks, python_functions, sources

SOURCE_LINES = 400
FUNCTION_LINES = 60
WORDS = {
    "README.md": 650, "CONTRIBUTING.md": 900, "harness/README.md": 900, "kernels/README.md": 800, "variants/README.md": 2600, "results/README.md": 1500,
    "configs/README.md": 2500, "configs/claims/README.md": 1500, "plots/README.md": 700,
}  # fmt: skip


def lines_of(project, file):
    return len((project / file).read_text().splitlines())


def long_sources(project):
    for file in sources(project) + sources(project, {".py"}):
        if lines_of(project, file) > SOURCE_LINES:
            yield f"{file} has more than {SOURCE_LINES} lines"


def functions(project):
    for file in sources(project):
        yield from ((file, b) for b in blocks((project / file).read_text()) if b.kind == "function")
    for file in sources(project, {".py"}):
        yield from ((file, b) for b in python_functions((project / file).read_text()))


def long_functions(project):
    for file, function in functions(project):
        if function.last - function.first + 1 > FUNCTION_LINES:
            yield f"{file}: {function.name} has more than {FUNCTION_LINES} lines"


def long_pages(project):
    for page, words in WORDS.items():
        if (project / page).exists() and len((project / page).read_text().split()) > words:
            yield f"{page} has more than {words} words"


RULES = [long_sources, long_functions, long_pages]


@pytest.mark.parametrize("rule", RULES)
def test_sources_are_short(rule):
    assert [found for found in rule(PROJECT) if found not in SIZES] == []


def test_no_exception_outlives_its_reason():
    assert set(SIZES) - {found for rule in RULES for found in rule(PROJECT)} == set()


def test_functions_are_really_found():
    found = {(str(file), function.name) for file, function in functions(PROJECT)}
    assert ("harness/main.cc", "main") in found
    assert ("harness/verify/metrics/metrics.cc", "kv::verify::metrics") in found
    assert ("harness/verify/reference/ring.cc", "kv::reference::policy::(anonymous)::Ring::costs") in found
    assert ("tests/project/sources.py", "blocks") in found
    assert len(found) > 1500


@pytest.mark.parametrize("head, name", [
    ("int f(int x) {", "f"),
    ("template <typename T> void f(T x) noexcept {", "f"),
    ("void A::f(std::function<void()> g = [] {}) const override {", "A::f"),
    ("A::A(int x) : x_(x), y_{x} {", "A::A"),
    ("bool operator==(A, A) {", "operator=="),
    ("TEST(Suite, Name) {", "TEST"),
    ("class A { public: int f() const {", "A::f"),
    ("namespace kv { namespace { int f() {", "kv::(anonymous)::f"),
])
def test_a_long_function_is_found(tmp_path, head, name):
    (tmp_path / "kernels").mkdir()
    for statements, found in ((58, []), (59, [f"kernels/long.cc: {name} has more than 60 lines"])):
        body = '  x = "{";  // {\n' * statements
        (tmp_path / "kernels/long.cc").write_text(f"int before;\n\n{head}\n{body}}}" + " }" * (head.count(" {") - 1) + "\n")
        assert list(long_functions(tmp_path)) == found


def test_data_is_no_function(tmp_path):
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels/table.cc").write_text("constexpr int kTable[] = {\n" + "  f(1),\n" * 99 + "};\n")
    assert list(long_functions(tmp_path)) == []


def test_a_long_python_function_is_found(tmp_path):
    (tmp_path / "plots").mkdir()
    (tmp_path / "plots/a.py").write_text("def f():\n" + "    x = 1\n" * 60)
    assert list(long_functions(tmp_path)) == ["plots/a.py: f has more than 60 lines"]


def test_a_long_source_and_a_long_page_are_found(tmp_path):
    (tmp_path / "variants").mkdir()
    (tmp_path / "variants/a.h").write_text("//\n" * 400)
    (tmp_path / "README.md").write_text("word " * WORDS["README.md"])
    assert [found for rule in RULES for found in rule(tmp_path)] == []
    (tmp_path / "variants/a.h").write_text("//\n" * 401)
    (tmp_path / "README.md").write_text("word " * (WORDS["README.md"] + 1))
    assert [found for rule in RULES for found in rule(tmp_path)] == [
        "variants/a.h has more than 400 lines",
        "README.md has more than 650 words",
    ]
