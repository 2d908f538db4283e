"""What mkdocs does not do by itself: README is the first page, and links out of docs/ lead somewhere.

A file of the repository that a page links to becomes a part of the site, under source/: Markdown as a page,
text as a page that shows it, pictures as they are, a folder as a list of its files.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File, InclusionLevel

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(?<=\]\()([^)\s#]+)")
SOURCE = re.compile(r'(?<=\bsrc=")([^"#:]+)')
FENCE = re.compile(r"^(`{3,})[^`\n]*\n.*?^\1`*$", re.S | re.M)
NETWORK = re.compile(r'<script src="https://[^"]*"></script>')
WORKER = "assets/worker.js"
LANGUAGES = {
    ".cu": "cuda",
    ".js": "javascript",
    ".json": "json",
    ".py": "python",
    ".schema": "protobuf",
    ".yaml": "yaml",
    ".yml": "yaml",
}
PICTURES = {".jpg", ".png", ".svg"}


def on_files(files, config):
    """Add README, our style sheet and script, and what the pages link to, and what that links to."""
    for uri, name in (("assets/site.css", "mkdocs.css"), (WORKER, "mkdocs_worker.js")):
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / ".ci" / name)))
    files.append(File.generated(config, "index.md", abs_src_path=str(ROOT / "README.md")))
    waiting = [repository_path(file.src_uri) for file in files.documentation_pages()]
    seen = set(waiting)
    while waiting:
        page = waiting.pop()
        if not page.endswith(".md"):
            continue
        for target in targets(page):
            if target not in seen and (ROOT / target).exists():
                seen.add(target)
                waiting.append(target)
                if not files.get_file_from_path(site_path(target)):
                    files.append(added(config, target))
    return files


def on_page_markdown(markdown, page, config, files):
    """Lead the links of a page to where their targets lie in the site."""
    origin = repository_path(page.file.src_uri)
    if not origin.endswith(".md") or page.file.src_uri == f"source/{origin}.md":
        return markdown
    return outside_fences(markdown, lambda text: relinked(text, origin))


def on_post_page(output, page, config):
    """Use our own script instead of the one from a network, for the search of a page opened from disk."""
    script = posixpath.relpath(WORKER, posixpath.dirname(page.url) or ".")
    return NETWORK.sub(f'<script src="{script}"></script>', output)


def on_post_template(output_content, template_name, config):
    """The page for what is not there may lie anywhere, and needs no such script."""
    return NETWORK.sub("", output_content)


def relinked(text: str, origin: str) -> str:
    """A text whose links to files of the repository are links within the site."""
    here = posixpath.dirname(site_path(origin))

    def moved(match: re.Match) -> str:
        target = resolved(origin, match[1])
        if target is None or not (ROOT / target).exists():
            return match[1]  # mkdocs reports it
        return posixpath.relpath(site_path(target), here or ".")

    return SOURCE.sub(moved, LINK.sub(moved, text))


def targets(page: str) -> set[str]:
    """The files and folders of the repository that a page links to."""
    text = FENCE.sub("", (ROOT / page).read_text())
    links = {resolved(page, link) for link in (*LINK.findall(text), *SOURCE.findall(text))}
    return links - {None, page}


def resolved(page: str, link: str) -> str | None:
    """A link of a page as a path from the root of the repository; None for one to elsewhere."""
    if re.match(r"\w+:", link):
        return None
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), link))
    return None if path.startswith("..") else path


def repository_path(uri: str) -> str:
    """Where a page of the site lies in the repository."""
    if uri == "index.md":
        return "README.md"
    return uri.removeprefix("source/") if uri.startswith("source/") else f"docs/{uri}"


def site_path(path: str) -> str:
    """Where a file of the repository lies in the site."""
    if path == "README.md":
        return "index.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    shown = Path(path).suffix in PICTURES | {".md"}
    return f"source/{path}" if shown else f"source/{path}.md"


def added(config, path: str) -> File:
    """A file or folder of the repository as a file of the site."""
    file = ROOT / path
    if file.is_dir():
        names = sorted(one.name for one in file.iterdir() if not one.name.startswith(("_", ".")))
        body = "".join(f"- `{path}/{name}`\n" for name in names)
    elif file.suffix in PICTURES | {".md"}:
        return generated(config, site_path(path), abs_src_path=str(file))
    else:
        text = file.read_text()
        fence = "`" * (2 + max(map(len, re.findall(r"`+", text)), default=1))
        body = f"{fence}{LANGUAGES.get(file.suffix, 'text')}\n{text}\n{fence}\n"
    return generated(config, site_path(path), content=page_of(path, body))


def generated(config, uri: str, **what) -> File:
    """A file of the site that does not lie in docs/; without this level one in .ci would be left out."""
    return File.generated(config, uri, inclusion=InclusionLevel.NOT_IN_NAV, **what)


def page_of(path: str, body: str) -> str:
    """A page that shows a file; the search does not find what is in it."""
    head = f"---\ntitle: {path}\nsearch: {{exclude: true}}\n---\n\n"
    return f"{head}# {posixpath.basename(path)}\n\n`{path}`\n\n{body}"


def outside_fences(text: str, change) -> str:
    """Change what is no code."""
    parts, end = [], 0
    for fence in FENCE.finditer(text):
        parts += [change(text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, change(text[end:])])
