"""Renders the templates of templates/, which escape every value."""

import re
from functools import cache
from pathlib import Path

import jinja2
from known import label_of
from markupsafe import Markup

TEMPLATES = Path(__file__).parent / "templates"


def file(name: str) -> Markup:
    """A style or a script, as it is."""
    return Markup((TEMPLATES / name).read_text(encoding="utf-8"))


@cache  # it keeps the templates that it has compiled
def environment() -> jinja2.Environment:
    loader = jinja2.FileSystemLoader(TEMPLATES)
    made = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    made.globals["file"] = file
    made.filters |= {"coded": coded, "breakable": breakable, "label": lambda name: label_of(name or "")}
    return made


def breakable(name: str) -> Markup:
    """A variant's name that may break where a stage or a parameter ends."""
    return Markup("<wbr>").join(re.findall(r"[^/,(]*[/,(]?", name))


def coded(text: str) -> Markup:
    """What stands in backquotes as code."""
    return Markup("").join(Markup("<code>{}</code>").format(part) if at % 2 else part for at, part in enumerate(text.split("`")))


def render(template: str, **values) -> str:
    return environment().get_template(template).render(values)
