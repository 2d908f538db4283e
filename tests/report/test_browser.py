"""The page in headless Chromium: no complaint, curves with the log's points, every section, hostile names."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess

import pytest

from minicaffe import backend
from minicaffe.report import write

CPU = backend.device("cpu")
HOSTILE = "</script><img src=x onerror=alert(1)>\"'&\U0001f600" + "x" * 10_000
PROBE = """
<pre id="probe"></pre><script>
window.found = { errors: [] };
addEventListener("error", (event) => found.errors.push(event.message));
addEventListener("DOMContentLoaded", () => {
  const all = (query) => [...document.querySelectorAll(query)];
  const paths = () => all("path[data-points]").map((path) => ({
    run: path.dataset.run, kind: path.dataset.kind, column: path.dataset.column, points: Number(path.dataset.points),
    drawn: (path.getAttribute("d").match(/[ML]/g) || []).length,
  }));
  found.paths = paths();
  found.sections = all("section").map((section) => section.id);
  const svg = document.querySelector(".chart svg");
  const box = svg.getBoundingClientRect();
  const move = { bubbles: true, clientX: box.right - 12, clientY: box.top + 50 };
  svg.dispatchEvent(new PointerEvent("pointermove", move));
  found.tip = document.querySelector(".tip").textContent;
  for (const input of all(".controls input, .controls select")) {
    if (input.type === "checkbox") input.checked = true;
    if (input.type === "range") input.value = 0;
    if (input.tagName === "SELECT") input.value = "seconds";
    input.dispatchEvent(new Event(input.type === "range" ? "input" : "change", { bubbles: true }));
  }
  found.after = paths();
  found.y = report.data.panels.map((panel) => report.draw(all(".chart")[0], panel, 600, 200)).map((chart) =>
    chart.curves.map((curve) => curve.shown.filter((point) => point[1] !== null).map((point) => point[1])));
  found.images = all("img").map((image) => image.complete && image.naturalWidth > 0);
  found.title = document.title;
  found.wide = document.documentElement.scrollWidth <= innerWidth;
  document.querySelector("header.top button").click();
  found.theme = document.documentElement.dataset.theme;
  document.getElementById("probe").textContent = JSON.stringify(found);
});
</script></body>"""


def browse(page) -> dict:
    """What the probe finds in a page; the browser itself must not complain."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("Chromium is not here")
    probed = page.with_name("probed.html")
    probed.write_text(page.read_text("utf-8").replace("</body>", PROBE), "utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0"]
    home = f"--user-data-dir={page.parent / 'browser'}"
    command = [chromium, *flags, home, "--window-size=390,900", "--dump-dom", probed.as_uri()]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "CONSOLE" not in ran.stderr, ran.stderr
    found = json.loads(
        html.unescape(re.search(r'<pre id="probe">(.*?)</pre>', ran.stdout, re.S)[1])
    )
    assert not found["errors"] and found["wide"] and found["theme"] == "light"
    return found


def test_a_page_in_the_browser(make_run):
    folder = make_run()
    data = write([folder], folder / "report.html", device=CPU)
    assert not [one for one in data["sections"] if "left_out" in one]
    found = browse(folder / "report.html")
    assert found["sections"][0] == "curves" and found["sections"][-1] == "environment"
    assert [one["id"] for one in data["sections"]] == found["sections"][1:-3]
    assert found["title"].startswith("a-run") and all(found["images"]) and len(found["images"]) > 5
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    logged = {kind: [line for line in lines if line["kind"] == kind] for kind in ("train", "test")}
    expected = []
    for panel in data["panels"]:
        for one in panel["series"]:
            rows = [line["outputs"] if one["outputs"] else line for line in logged[one["kind"]]]
            values = [row[one["column"]] for row in rows if row[one["column"]] is not None]
            expected.append((one["kind"], one["column"], len(values), values))
    for paths in (found["paths"], found["after"]):
        shown = [(path["kind"], path["column"], path["points"]) for path in paths]
        assert shown == [one[:3] for one in expected]
        assert all(path["drawn"] == path["points"] for path in paths)
    assert [values for panel in found["y"] for values in panel] == [one[3] for one in expected]
    assert "iteration 60" in found["tip"] and "1.4" in found["tip"]


def test_several_runs_with_hostile_names(make_run):
    lines = [
        {"kind": "train", "iteration": i, "loss": 1.0 - i, "outputs": {HOSTILE: 1.0, "b": i / 3}}
        for i in range(3)
    ]
    lines.append({"kind": "event", "iteration": 2, "text": HOSTILE, "seconds": None})
    lines.append({"kind": "test", "iteration": 2, "outputs": {HOSTILE: 2.0}})
    runs = [make_run(name, lines=lines, command=[HOSTILE], note=HOSTILE) for name in ("a <b>", "c")]
    data = write(runs, runs[0] / "both.html", device=CPU)
    found = browse(runs[0] / "both.html")
    count = sum(len(panel["series"]) for panel in data["panels"])
    assert len(found["paths"]) == count == 2 * 4
    assert {"runs", "differs", "curves", "events"} <= set(found["sections"])
