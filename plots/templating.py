"""Renders the templates of templates/, which escape every value."""

from __future__ import annotations

from pathlib import Path

import jinja2
from markupsafe import Markup

TEMPLATES = Path(__file__).parent / "templates"


def file(name: str) -> Markup:
    """A style or a script, as it is."""
    return Markup((TEMPLATES / name).read_text(encoding="utf-8"))


def render(template: str, **values) -> str:
    loader = jinja2.FileSystemLoader(TEMPLATES)
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.globals["file"] = file
    return environment.get_template(template).render(values)
