"""Opens a report from disk, in a browser without a network."""

from pathlib import Path

# Charts of closed chapters have no size.
OPEN_ALL = "document.querySelectorAll('details.chapter, details.numbers').forEach((one) => { one.open = true; })"


def open_report(browser, folder: Path, before: str = "", **context) -> tuple:
    return open_file(browser, folder / "report.html", before, **context)


def open_file(browser, file: Path, before: str = "", **context) -> tuple:
    """(the page, what its console complains of); `before` is a script that runs ahead of the page's own."""
    complaints: list[str] = []
    page = browser.new_context(offline=True, **{"viewport": {"width": 1400, "height": 1000}, **context}).new_page()
    page.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda r: complaints.append(r.url) if r.url.startswith("http") else None)
    if before:
        page.add_init_script(before)
    page.goto(file.as_uri())
    return page, complaints
