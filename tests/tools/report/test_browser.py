"""The page in headless Chromium: no complaint, curves with the log's points, every section, hostile names."""

import json

import pytest

from minicaffe.backends import device as backend
from minicaffe.tools.report import write
from minicaffe.tools.training.folder import Lock

CPU = backend.device("cpu")
HOSTILE = "</script><img src=x onerror=alert(1)>\"'&\U0001f600" + "x" * 10_000
PATHS = """[...document.querySelectorAll("path[data-points]")].map((path) => ({
  kind: path.dataset.kind, column: path.dataset.column, points: Number(path.dataset.points),
  drawn: (path.getAttribute("d").match(/[ML]/g) || []).length,
}))"""
VALUES = """report.data.panels.map((panel) => report.draw(document.querySelector(".chart"), panel, 600, 200))
  .flatMap((chart) => chart.curves.map((curve) => curve.points.map((point) => point[1]).filter((y) => y !== null)))"""
POINT = """(() => {
  const box = document.querySelector(".chart svg").getBoundingClientRect();
  const at = { bubbles: true, clientX: box.right - 12, clientY: box.top + 50 };
  document.querySelector(".chart svg").dispatchEvent(new PointerEvent("pointermove", at));
  return document.querySelector(".tip").textContent;
})()"""
CHANGE = """(() => {
  for (const input of document.querySelectorAll(".controls input, .controls select")) {
    if (input.type === "checkbox") input.checked = false;
    if (input.type === "range") input.value = 0;
    if (input.tagName === "SELECT") input.value = "seconds";
    input.dispatchEvent(new Event(input.type === "range" ? "input" : "change"));
  }
})()"""


def narrow(chromium) -> bool:
    """Whether nothing makes the page wider than its window."""
    return chromium.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_curves_have_the_logs_points(make_run, chromium):
    folder = make_run()
    data = write([folder], folder / "report.html", device=CPU)
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    logged = {kind: [line for line in lines if line["kind"] == kind] for kind in ("train", "test")}
    expected = []
    for panel in data["panels"]:
        for one in panel["series"]:
            rows = [line["outputs"] if one["outputs"] else line for line in logged[one["kind"]]]
            values = [row[one["column"]] for row in rows if row[one["column"]] is not None]
            expected.append((one["kind"], one["column"], values))
    assert [one[:2] for one in expected[:3]] == [
        ("train", "loss"),
        ("test", "loss"),
        ("test", "accuracy"),
    ]
    chromium.open(folder / "report.html")
    assert "iteration 60" in (tip := chromium.evaluate(POINT)) and "1.4" in tip
    for change in (None, CHANGE):
        chromium.evaluate(change or "")
        shown = chromium.evaluate(PATHS)
        assert [(path["kind"], path["column"]) for path in shown] == [one[:2] for one in expected]
        for path, (_, _, values) in zip(shown, expected, strict=True):
            assert path["points"] == path["drawn"] == len(values)
    assert chromium.evaluate(VALUES) == [one[2] for one in expected]
    assert not chromium.complaints
    chromium.open(folder / "report.html")  # what was set is kept
    assert chromium.evaluate("report.labels([25.995, 26, 0.5])") == ["25.995", "26", "0.5"]
    assert chromium.evaluate("report.settings") == {
        "x": "seconds",
        "log": False,
        "smooth": 0,
        "theme": "auto",
    }


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1280, "dark")])
def test_every_section_is_there(make_run, chromium, width, scheme):
    folder = make_run()
    data = write([folder], folder / "report.html", device=CPU)
    assert {one["id"] for one in data["sections"] if "left_out" in one} <= {"try"}
    chromium.call(
        "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}]
    )
    chromium.open(folder / "report.html", width)
    found = chromium.evaluate(
        "[...document.querySelectorAll('section')].map((section) => section.id)"
    )
    there = [one["id"] for one in data["sections"] if "data" in one]
    assert found[: len(there) + 1] == ["curves", *there]
    assert {"scores", "events", "environment"} <= set(found)
    images = chromium.evaluate(
        "[...document.images].map((image) => image.complete && image.naturalWidth)"
    )
    assert len(images) > 5 and all(images)
    colour = chromium.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (int(colour[4:].split(",")[0]) < 60) == (scheme == "dark")
    chromium.evaluate("document.querySelector('header.top button').click()")
    light = chromium.evaluate("getComputedStyle(document.body).backgroundColor")
    assert int(light[4:].split(",")[0]) > 200
    assert narrow(chromium) and not chromium.complaints
    assert chromium.call("Page.printToPDF")["data"].startswith("JVBERi0")  # %PDF-1


SMOOTH = """(() => {
  const panel = report.data.panels[0];
  const [curve] = report.draw(document.querySelector(".chart"), panel, 600, 200).curves;
  return { soft: curve.soft, points: curve.points.map(([, y]) => y), shown: curve.shown.map(([, y]) => y) };
})()"""


@pytest.mark.parametrize("count", [29, 30])
def test_few_points_are_not_smoothed_and_the_smooth_line_ends_where_the_data_do(
    make_run, chromium, count
):
    lines = [
        {"kind": "train", "iteration": 250 * i, "loss": 2.0 ** -(i % 9), "outputs": {}}
        for i in range(count)
    ]
    folder = make_run(lines=lines)
    write([folder], folder / "report.html", device=CPU)
    chromium.open(folder / "report.html")
    curve = chromium.evaluate(SMOOTH)
    points, shown = curve["points"], curve["shown"]
    assert curve["soft"] == (count == 30) == (points != shown)
    assert (shown[0], shown[-1]) == (points[0], points[-1])
    if count == 30:
        assert shown[10] == pytest.approx(sum(points[7:14]) / 7)
    text = "[...document.querySelectorAll('.chart text[text-anchor=end]')].at(-1).textContent"
    assert chromium.evaluate(text) == f"{250 * (count - 1):,}"
    assert chromium.evaluate("report.ticksToEnd(0, 990, (x) => x / 4, 5)") == [
        0,
        200,
        400,
        600,
        990,
    ]
    assert chromium.evaluate(
        "report.smoothed([[0, 4, 0], [1, null, 1], [2, 1, 2], [3, 1, 3]], 1)"
    ) == [*([0, 4, 0], [1, None, 1], [2, 2, 2]), [3, 1, 3]]
    assert not chromium.complaints


def test_captions_say_what_is_drawn_and_how(make_run, chromium):
    folder = make_run()
    write([folder], folder / "report.html", device=CPU)
    chromium.open(folder / "report.html")
    captions = "[...document.querySelectorAll('figcaption')].slice(0, 2).map((one) => one.innerText.split(/\\s{2,}|\\n/))"
    assert chromium.evaluate(captions) == [
        ["Loss", "log scale"],
        ["Accuracy", "log scale of the distance to 1"],
    ]
    chromium.evaluate(CHANGE)
    assert chromium.evaluate(captions) == [["Loss"], ["Accuracy"]]
    assert chromium.evaluate("[0.9959, 0.99, 1, 0].map(report.percent)") == [
        *("99.59 %", "99.00 %", "100.00 %"),
        "0.00 %",
    ]


def test_scores_of_training_pictures_are_called_so(make_run, chromium):
    folder = make_run("a", tests_on=[" on the training pictures"])
    write([folder], folder / "report.html", device=CPU)
    chromium.open(folder / "report.html")
    body = chromium.evaluate("document.body.innerText")
    assert "accuracy on the training pictures" in body and "\nScores\n" in body
    legend = chromium.evaluate("document.querySelector('.legend').innerText")
    assert legend.split("\n") == ["training", "training pictures"]
    assert "training pictures" in chromium.evaluate(POINT)
    assert "test" not in chromium.evaluate("document.querySelector('.tiles').innerText")
    other = make_run("b", change={"name: Small": "name: Other"})
    write([folder, other], folder / "both.html", device=CPU)
    chromium.open(folder / "both.html")
    rows = "[...document.querySelectorAll('#runs tr')].map((row) => [...row.cells].map((cell) => cell.innerText))"
    head, first, second = chromium.evaluate(rows)
    at = head.index("accuracy")
    assert [first[at], second[at]] == ["0.3600 (training pictures)", "0.3600 (test)"]
    assert "dashed: training pictures, test" in chromium.evaluate("document.body.innerText")
    assert not chromium.complaints


def test_a_wide_matrix_says_on_a_phone_that_it_scrolls(make_run, chromium):
    folder = make_run(change={"num_output: 3": "num_output: 12"})
    write([folder], folder / "report.html", device=CPU)
    shown = """(async (left) => {
      const box = document.querySelector(".matrix").parentElement;
      box.scrollLeft = left;
      await new Promise((done) => setTimeout(done, 200));
      return [box.matches(".more"), box.previousElementSibling.checkVisibility()];
    })"""
    chromium.open(folder / "report.html", 390)
    assert chromium.evaluate(f"{shown}(0)") == [True, True]
    assert chromium.evaluate(f"{shown}(9999)") == [False, False]
    chromium.open(folder / "report.html", 1280)
    assert chromium.evaluate(f"{shown}(0)") == [False, False]


def test_where_an_answer_comes_its_bars_are_there(make_run, chromium):
    folder = make_run(change={"name: Small": "name: Small\nclasses: [ann, bob, cy]"})
    write([folder], folder / "report.html", device=CPU)
    chromium.open(folder / "report.html", 390)
    assert chromium.evaluate("document.querySelector('.answer .bars').innerText.split('\\n')") == [
        *("ann", "bob", "cy")
    ]
    empty = "(({ bottom }, last) => bottom - last.bottom)"
    box = "document.querySelector('.answer').getBoundingClientRect()"
    text = "document.querySelector('.answer > p:last-child').getBoundingClientRect()"
    assert chromium.evaluate(f"{empty}({box}, {text})") < 20


def test_runs_with_hostile_names(make_run, chromium):
    lines = [
        {"kind": "train", "iteration": i, "loss": 1.0 - i, "outputs": {HOSTILE: 1.0, "b": i / 3}}
        for i in range(3)
    ]
    lines.append({"kind": "event", "iteration": 2, "text": HOSTILE, "seconds": None})
    lines.append(
        {"kind": "test", "iteration": 2, "outputs": {HOSTILE: 2.0, "each": [[0.5], [None]]}}
    )
    lines.append({"kind": "test", "iteration": 1, "outputs": {"none": None}})
    lines.append({"kind": "test", "iteration": 9, "outputs": {"each": [[0.5], [None]]}})
    runs = [
        make_run(name, lines=lines, command=[HOSTILE, name], note=HOSTILE + name)
        for name in ("a <b>", "c")
    ]
    data = write(runs, runs[0] / "both.html", device=CPU)
    chromium.open(runs[0] / "both.html", 390)
    assert (
        len(chromium.evaluate(PATHS)) == sum(len(panel["series"]) for panel in data["panels"]) == 8
    )
    text = chromium.evaluate("document.body.textContent")
    assert HOSTILE in text and "each[1]" in text
    hide = "document.querySelector('.legend button').click()"
    chromium.evaluate(hide)
    assert len(chromium.evaluate(PATHS)) == 4
    chromium.evaluate(hide)
    assert len(chromium.evaluate(PATHS)) == 8
    assert narrow(chromium) and not chromium.complaints


def test_an_open_page_follows_its_run(make_run, chromium, monkeypatch):
    monkeypatch.setattr("minicaffe.tools.report.make.REFRESH", (1, 1))
    folder = make_run(state="running")
    lock = Lock(folder)
    write([folder], folder / "report.html", device=CPU)
    lock.release()
    chromium.open(folder / "report.html")
    chromium.evaluate("scrollTo(0, 300)")
    before = chromium.loads
    with open(folder / "log.jsonl", "a") as file:
        file.write(
            json.dumps({"kind": "train", "iteration": 70, "loss": 0.5, "outputs": {}}) + "\n"
        )
    about = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**about, "state": "finished"}))
    write([folder], folder / "report.html", device=CPU)
    over = "typeof report === 'object' && report.data.runs[0].state === 'finished'"
    while not chromium.evaluate(over):
        chromium.wait(before)
        before = chromium.loads
    assert chromium.evaluate("report.data.runs[0].train.iteration.at(-1)") == 70
    assert chromium.evaluate("scrollY") == 300 and not chromium.complaints
