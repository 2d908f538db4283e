"""docs/ as a site, and the container: what can be checked of both without a browser and without Docker."""

import configparser
import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
SETTINGS = ROOT / ".ci" / "mkdocs.yml"
README = "index.md"  # in the site


def pages(nav) -> list[str]:
    """The pages of a navigation, in its order."""
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [page for part in parts for page in pages(part)]


def test_the_navigation_has_every_page_once():
    found = pages(yaml.safe_load(SETTINGS.read_text("utf-8"))["nav"])
    here = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert sorted(found) == sorted(here | {README})
    assert found[0] == README


def test_readme_links_to_every_page_of_the_navigation():
    """Where to read on: no page is only found by chance."""
    links = set(re.findall(r"\]\(docs/([^)#]+\.md)", (ROOT / "README.md").read_text("utf-8")))
    nav = set(pages(yaml.safe_load(SETTINGS.read_text("utf-8"))["nav"])) - {README}
    assert {page for page in nav if not page.startswith("examples/")} <= links
    assert "examples/README.md" in links


def build(site: Path, settings: Path = SETTINGS) -> subprocess.CompletedProcess:
    """Strictly, and not quietly: a warning that is not shown is not counted."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    command += ["-f", str(settings), "-d", str(site)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def broken(site: Path) -> set[tuple[str, str]]:
    """The links and pictures of the built pages that lead to no file, each with its page."""
    found = set()
    for page in site.rglob("*.html"):
        if page.name != "404.html":  # its links begin at the site's root, wherever that lies
            for link in re.findall(r"""(?:href|src)=["']?([^"'> #?]+)""", page.read_text("utf-8")):
                if not re.match(r"\w+:|//", link) and not (page.parent / unquote(link)).exists():
                    found.add((page.relative_to(site).as_posix(), link))
    return found


@pytest.mark.skipif(find_spec("material") is None, reason="mkdocs-material is not installed")
def test_the_site_is_built_without_a_warning_and_needs_no_network(tmp_path):
    ran = build(tmp_path / "site")
    assert ran.returncode == 0, ran.stderr
    first = (tmp_path / "site" / "index.html").read_text("utf-8")
    assert 'src="report.png"' in first and 'src="lenet.svg"' in first
    loads = r"""<(?:script|img|iframe)[^>]*\bsrc=["']?(https?:[^"'> ]+)|<link[^>]*rel=["']?stylesheet[^>]*href=["']?(https?:[^"'> ]+)"""
    for page in (tmp_path / "site").rglob("*.html"):
        text = page.read_text("utf-8")
        assert not re.findall(loads, text), page
        assert "fonts.g" not in text
    (source,) = (tmp_path / "site" / "source" / "minicaffe" / "core" / "layers").glob(
        "base.py.html"
    )
    assert "class" in source.read_text("utf-8")
    assert not broken(tmp_path / "site")
    index = json.loads((tmp_path / "site" / "search" / "search_index.json").read_text("utf-8"))
    assert not [one for one in index["docs"] if one["location"].endswith(".py.html")]


@pytest.mark.skipif(find_spec("material") is None, reason="mkdocs-material is not installed")
def test_broken_links_end_the_build(tmp_path):
    docs, links = tmp_path / "docs", ["nowhere.md", "data.md#nowhere", "../minicaffe/nowhere.py"]
    docs.mkdir()
    (docs / "data.md").write_text("# Data\n\n" + "\n".join(f"[a link]({link})" for link in links))
    text = SETTINGS.read_text("utf-8").replace("docs_dir: ../docs", f"docs_dir: {docs}")
    text = text.replace("mkdocs_hooks.py", str(ROOT / ".ci" / "mkdocs_hooks.py"))
    (tmp_path / "mkdocs.yml").write_text(
        text[: text.index("nav:\n")] + "nav: [index.md, data.md]\n"
    )
    ran = build(tmp_path / "site", tmp_path / "mkdocs.yml")
    assert ran.returncode != 0
    assert [link for link in links if link not in ran.stderr] == []


INSTRUCTIONS = ("ARG", "FROM", "COPY", "RUN", "ENV", "USER", "WORKDIR", "ENTRYPOINT", "CMD")


def instructions() -> list[tuple[str, str]]:
    """Of the Dockerfile: the word and its arguments, lines joined."""
    lines = (ROOT / ".ci" / "Dockerfile").read_text("utf-8").splitlines()
    text = "\n".join(line for line in lines if line and not line.startswith("#"))
    return [tuple(line.split(maxsplit=1)) for line in re.sub(r"\s*\\\n\s*", " ", text).splitlines()]


def test_the_container_is_small_and_runs_minicaffe_as_no_root():
    told = instructions()
    assert {word for word, _ in told} == set(INSTRUCTIONS)
    stages = [rest for word, rest in told if word == "FROM"]
    assert stages == ["python:${PYTHON}-slim AS build", "python:${PYTHON}-slim"]
    last = told[[word for word, _ in told].index("FROM", 2) :]
    by_word = dict(last)
    assert by_word["USER"] == "caffe" and "--uid 1000 caffe" in by_word["RUN"]
    assert json.loads(by_word["ENTRYPOINT"]) == ["minicaffe"] and json.loads(by_word["CMD"])
    order = [word for word, _ in last]
    assert order.index("RUN") < order.index("USER") < order.index("ENTRYPOINT")


def test_what_the_container_copies_and_installs_is_there():
    told = instructions()
    for word, rest in told:
        if word == "COPY" and not rest.startswith("--from"):
            *sources, target = rest.split()
            assert all((ROOT / source).exists() for source in sources)
            assert target.startswith("/source/")
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    extras = setup["options.extras_require"]
    default = dict(rest.split("=") for word, rest in told if word == "ARG")
    assert default["EXTRA"] == "cpu" and {"cpu", "cuda12", "cuda13", "image"} <= set(extras)
    oldest = setup["options"]["python_requires"].removeprefix(">=")
    assert tuple(map(int, default["PYTHON"].split("."))) >= tuple(map(int, oldest.split(".")))
    (install,) = [rest for word, rest in told if word == "RUN" and "pip install" in rest]
    assert '"/source[${EXTRA},image]"' in install
