"""The page: self-contained, consistent with the JSON, and alive in a browser where one is installed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import jax
import jax.numpy as jnp
import pytest

import ipu_model
from ipu_model.report.compare import compare
from ipu_model.report.html import charts, formats, render
from ipu_model.report.html.tree import _path, tree

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def profile(width: int, **options) -> ipu_model.Report:
    def loss(p, x):
        for k, w in enumerate(p):
            with jax.named_scope(f"onnx[block{k}/fc <&>]"):
                x = jnp.tanh(x @ w)
        return x.sum()

    def step(p, x):
        g = jax.grad(loss)(p, x)
        with jax.named_scope("update"):
            return [w - 0.1 * d for w, d in zip(p, g, strict=True)]

    p = [jnp.ones((width, width))] * 4
    return ipu_model.profile(step, p, jnp.ones((64, width)), name=f"mlp {width}", **options)


@pytest.fixture(scope="module")
def report():
    return profile(256)


@pytest.fixture(scope="module")
def page(report):
    return render(report, compare=profile(128))


def marks(page: str, kind: str) -> list[ET.Element]:
    """All marks of the charts of one class."""
    found = re.findall(rf'<svg [^>]*class="{kind}">.*?</svg>', page, re.DOTALL)
    assert found, f"no {kind} chart"
    return [mark for svg in found for mark in ET.fromstring(svg).iter()]


def test_page_is_self_contained(page):
    assert "http://" not in page
    assert "https://" not in page
    assert "<link" not in page
    assert "src=" not in page
    assert len(page) < 500_000


def test_names_are_escaped(page):
    assert "<&>" not in page.split('id="data"')[0]
    assert "fc &lt;&amp;&gt;" in page


def test_phase_bars_sum_to_the_cycles(page, report):
    bars = [float(m.get("data-value")) for m in marks(page, "phases") if m.get("data-value")]
    assert sum(bars) == pytest.approx(report.cycles.total, abs=1)


def test_heat_map_holds_every_tile(page, report):
    cells = [m for m in marks(page, "heat") if m.get("data-tile")]
    total = sum(int(c.get("data-bytes")) * int(c.get("data-tiles")) for c in cells)
    assert sum(int(c.get("data-tiles")) for c in cells) == report.target["tilesPerIPU"]
    assert total == report.memory.total


def embedded(page: str) -> dict:
    """The figures that the scripts show."""
    return json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL).group(1))


def test_categories_agree_with_the_embedded_data(page, report):
    data = embedded(page)
    bars = {
        m.get("data-category"): int(m.get("data-bytes")) for m in marks(page, "categories") if m.get("data-category")
    }
    assert bars == {k: v for k, v in data["categories"].items() if v}
    assert sum(row[-1] for row in data["tiles"]) == report.target["tilesPerIPU"]
    assert data["cycles"] == report.total_cycles


def test_timeline_and_operations_cover_the_run(page, report):
    bars = [float(m.get("data-cycles")) for m in marks(page, "timeline") if m.get("data-cycles")]
    assert sum(bars) == pytest.approx(report.total_cycles, rel=1e-3)
    tree = embedded(page)["tree"]
    first, kinds = 4, len(tree["kinds"])
    assert len(tree["rows"]) == len(report.operations)
    assert sum(sum(row[first : first + kinds]) for row in tree["rows"]) == pytest.approx(report.cycles.total, rel=1e-6)
    assert sum(row[first + kinds] for row in tree["rows"]) == pytest.approx(report.cycles.flops, rel=1e-6)


def test_a_scope_of_one_row_is_part_of_its_name():
    def fn(x):
        for name in ("a/b/c", "d/e"):
            with jax.named_scope(f"onnx[{name}]"):
                x = jnp.tanh(x)
        return x

    found = tree(ipu_model.profile(fn, jnp.ones((8, 8))))
    assert len(found["scopes"]) == 1
    assert [row[:2] for row in found["rows"]] == [[0, "a/b/c"], [0, "d/e"]]


def test_scopes_nest_to_any_depth_and_chains_of_one_are_joined():
    def fn(x):
        with jax.named_scope("model/encoder"):
            for layer in range(2):
                with jax.named_scope(f"layer{layer}"), jax.named_scope("attention"):
                    for part in ("query", "value"):
                        with jax.named_scope(part):
                            x = x @ x
                    with jax.named_scope("onnx[key[a/b]]"):
                        x = jnp.tanh(x)
        return x

    found = tree(ipu_model.profile(fn, jnp.ones((8, 8))))
    paths = {}
    for k, (name, parent) in enumerate(found["scopes"]):
        paths[k] = f"{paths[parent]}>{name}" if parent > 0 else name
    names = {f"{paths[row[0]]}>{row[1]}" for row in found["rows"]}
    assert {"model/encoder>layer0/attention>query", "model/encoder>layer1/attention>query"} <= names
    assert any(row[1] == "key[a/b]" for row in found["rows"])


def test_what_a_scope_does_itself_is_part_of_its_sum():
    def fn(x):
        with jax.named_scope("block"):
            with jax.named_scope("inner"):
                x = x @ x
            return jnp.tanh(x)

    found = tree(ipu_model.profile(fn, jnp.ones((8, 8))))
    assert found["scopes"] == [("", -1), ("block", 0)]
    assert [(row[0], row[1].partition("test_html.py:")[0]) for row in found["rows"]] == [(1, "inner/"), (1, "")]


def test_a_scope_of_a_plain_function_opens_into_its_lines():
    def fn(x, y):
        with jax.named_scope("block"):
            z = x @ y
            return jax.nn.softmax(z)

    report = ipu_model.profile(fn, jnp.ones((8, 8)), jnp.ones((8, 8)))
    assert {row.node for row in report.operations} == {"block"}
    found, first = tree(report), fn.__code__.co_firstlineno
    assert found["scopes"] == [("", -1), ("block", 0)]
    assert [row[:2] for row in found["rows"]] == [[1, f"test_html.py:{first + 2}"], [1, f"test_html.py:{first + 3}"]]
    assert f"block/test_html.py:{first + 3} (forward)" in str(report)
    assert not report.compare(report).operations


def test_what_a_library_function_does_counts_for_the_line_that_calls_it():
    def fn(x):
        with jax.named_scope("head"):
            return jax.nn.log_softmax(jax.jit(jnp.tanh)(x))

    first = fn.__code__.co_firstlineno
    for traced in (fn, jax.grad(lambda x: fn(x).sum())):  # what is traced a second time has no frames of ours
        found = ipu_model.profile(traced, jnp.ones((8, 8)))
        assert {row.line for row in found.operations if row.node == "head"} == {f"test_html.py:{first + 2}"}


def test_long_names_that_are_shortened_alike_are_added_up():
    def fn(x):
        for middle in ("first", "second"):
            with jax.named_scope(f"onnx[{'a' * 30}{middle}{'b' * 30}]"):
                x = x @ x
        return x

    report = ipu_model.profile(fn, jnp.ones((64, 64)))
    assert " 100.0% " in str(report)


@pytest.mark.parametrize(
    ("top", "texts"),
    [
        (649 * 1024, ["0 B", "200 KiB", "400 KiB", "600 KiB"]),
        (201 * 2**20, ["0 B", "50 MiB", "100 MiB", "150 MiB", "200 MiB"]),
        (1.2 * 2**30, ["0 B", "256 MiB", "512 MiB", "768 MiB", "1 GiB"]),
        (3, ["0 B", "1 B", "2 B", "3 B"]),
        (1, ["0 B", "1 B"]),
    ],
)
def test_axes_have_round_sizes(top, texts):
    assert [formats.size(value) for value in formats.round_sizes(top)] == texts


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("a/b/Conv", ("a", "b", "Conv")),
        ("/layer.0/Conv", ("/layer.0", "Conv")),
        ("key[a/b]", ("key[a/b]",)),
        ("Relu:Relu:0/1", ("Relu:Relu:0/1",)),
        ("block/Relu:0/1", ("block", "Relu:0/1")),
        ("block/0", ("block", "0")),
        ("", ("",)),
        ("/", ("/",)),
    ],
)
def test_names_are_split_where_scopes_end(name, path):
    assert _path(name) == path


def test_operators_are_named_by_the_caller_or_by_their_primitives():
    def fn(x):
        with jax.named_scope("onnx[fc]"):
            x = x @ x
        return jnp.tanh(x)

    placement = ipu_model.Placement({"fc": ipu_model.NodePlacement(operator="Gemm")})
    rows = tree(ipu_model.profile(fn, jnp.ones((8, 8)), placement=placement))["rows"]
    assert [row[3] for row in rows] == ["Gemm", "tanh"]


def test_a_page_of_ten_thousand_operations_shows_and_sums_them_all():
    def fn(x):
        for k in range(10_000):
            with jax.named_scope(f"onnx[layer{k // 100}/op{k}]"):
                x = x + 1
        return x

    report = ipu_model.profile(fn, jnp.ones(64))
    page = render(report)
    bars = [m for m in marks(page, "timeline") if m.get("data-cycles")]
    assert len(page) < 4_000_000
    assert len(bars) < 3_000
    assert sum(float(b.get("data-cycles")) for b in bars) == pytest.approx(report.total_cycles, rel=1e-3)
    assert len(embedded(page)["tree"]["rows"]) == 10_000


class Parts(HTMLParser):
    """Headings of a page, each with its help, the figures below it, and the headings of columns of figures."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.parts: list[dict[str, str]] = [dict.fromkeys(("name", "help", "figures", "columns"), "")]
        self.open: list[tuple[str, str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "input"):  # these have no end
            self.open.append((tag, dict(attrs).get("class") or ""))
        if tag in ("h2", "h3"):
            self.parts.append(dict.fromkeys(("name", "help", "figures", "columns"), ""))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Marks of charts hold no text."""

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        tags, classes, part = {t for t, _ in self.open}, {c for _, c in self.open}, self.parts[-1]
        if tags & {"script", "style"} or not data.strip():
            return
        if "details" in tags and "help" in classes:
            part["help"] += data
        elif tags & {"h2", "h3"}:
            part["name"] += data
        elif "th" in tags and "n" in classes:
            part["columns"] += f"{data}\n"
        elif re.search(r"\d", data) and tags & {"td", "strong", "svg", "li", "p"}:
            part["figures"] += data


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (formats.seconds(0.9999), "1000 ms"), (formats.seconds(9.3e-3), "9.3 ms"), (formats.seconds(0), "0 µs"),
        (formats.count(999_999), "1000 k"), (formats.count(2e15), "2 P"),
        (formats.count(2e18), "2 E"), (formats.count(880_836), "881 k"), (formats.count(9_999), "9,999"),
        (formats.size(1023.7 * 1024), "1024 KiB"), (formats.size(1.5 * 1024), "1.5 KiB"),
    ],
)  # fmt: skip
def test_figures_have_three_digits_and_no_power_of_ten(text, expected):
    assert text == expected


def test_no_work_is_a_count_of_operations_too():
    assert "<strong>0 FLOP</strong>" in render(ipu_model.profile(lambda x: x, jnp.ones(3)))


def test_every_part_and_figure_has_a_help(page):
    assert "How sure: on published figures" in page
    parts = Parts(page).parts[1:]  # before the first heading stands what the machine is
    names = {"Cycles", "Fits", "Timeline", "Liveness", "Operations", "Vertex types", "Figures"}
    assert {part["name"].strip() for part in parts if part["figures"] or part["columns"]} >= names
    comparison, says = False, ""
    for part in parts:
        comparison = part["name"].startswith("Compared with") or (comparison and part["name"] != "Notes")
        says = part["help"] or (says if comparison else "")  # the tables of a comparison share one help
        if part["figures"] or part["columns"]:
            assert len(says) > 60, f"{part['name']}: no help for {part['figures'][:80]!r}"
        for column in part["columns"].splitlines():
            assert column.lower() in says.lower(), f"{part['name']}: nothing says what {column!r} is"


def test_a_program_that_does_not_fit_explains_its_figures():
    shape = jax.ShapeDtypeStruct((20_000, 20_000), jnp.float32)
    page = render(ipu_model.profile(jnp.tanh, shape))
    (part,) = [part for part in Parts(page).parts if part["name"].startswith("Does not fit")]
    assert part["figures"]
    assert "frees" in part["help"]


def test_sorted_profile_reaches_the_fullest_tile_and_shows_the_limit(page, report):
    found = marks(page, "profile")
    assert [int(m.get("data-max")) for m in found if m.get("data-max")] == [report.memory.max_tile]
    assert any("limit" in (m.get("class") or "") for m in found)


def test_balance_covers_the_compute_cycles(page, report):
    bars = [float(m.get("data-cycles")) for m in marks(page, "balance") if m.get("data-cycles")]
    parts = [p.cycles.compute * p.times * s.trips for s in report.steps for p in s.parts]
    assert sum(bars) == pytest.approx(sum(parts), abs=1)


def test_a_tile_that_holds_too_much_is_red():
    over, under = charts._heat(1.5), charts._heat(0.9)
    red, green, blue = (int(over[k : k + 2], 16) for k in (1, 3, 5))
    assert red > 2 * max(green, blue)
    assert int(under[3:5], 16) > 150
    assert charts._heat(1.2) != charts._heat(1.9)


def test_comparison_lists_what_changed(page):
    assert "Compared with mlp 128" in page
    assert "Operations that changed most" in page
    assert "Variables that changed most" in page


def test_comparison_as_text():
    text = str(compare(profile(256), profile(128)))
    assert text.startswith("compared with mlp 128:")
    assert "cycles of a run: " in text
    assert "block0/fc <&> (forward): " in text
    same = compare(profile(128), profile(128))
    assert not same.operations
    assert not same.variables


def test_comparison_leaves_out_what_hardly_changed():
    def changed(width, rows):
        def fn(x, y):
            with jax.named_scope("large"):
                x = x @ x
            with jax.named_scope("small"):
                return x, jnp.tanh(y)

        shapes = ((width, width), (rows, 64))
        return ipu_model.profile(fn, *(jax.ShapeDtypeStruct(shape, jnp.float16) for shape in shapes))

    alone = compare(changed(1024, 4096), changed(1024, 2048))
    assert [name.split()[0] for name, *_ in alone.operations] == ["small"]
    both = compare(changed(2048, 4096), changed(1024, 2048))
    assert [name.split()[0] for name, *_ in both.operations] == ["large"]


def test_chips_with_other_clocks_are_compared_in_time():
    slow, fast = (ipu_model.profile(jnp.tanh, jnp.ones(64), target=chip, name="tanh") for chip in ("mk2", "bow"))
    found = compare(fast, slow)
    assert (found.name, found.unit) == ("tanh on mk2", "ns")
    _, before, now = found.cycles[0]
    assert now / before == pytest.approx(1.33 / 1.85)
    assert before == pytest.approx(slow.schedule.seconds * 1e9)
    assert not any("cycles" in name for name, *_ in found.cycles)
    with pytest.raises(TypeError, match="compared with a report, not with None"):
        compare(fast, None)


PROBE = """
<script>
const out = {};
const rows = (kind) => [...document.querySelectorAll(`#ops tbody tr.${kind}`)];
const cycles = () => rows("op").map((r) => Number(r.dataset.cycles));
const head = (key) => document.querySelector(`#ops th[data-key="${key}"] button`);
document.getElementById("grouped").click();
out.down = cycles();
head("cycles").click();
out.up = cycles();
head("path").click();
out.names = rows("op").map((r) => r.dataset.name);
document.getElementById("grouped").click();
document.getElementById("open-all").click();
out.scopes = rows("head").map((r) => r.dataset.scope);
out.sums = rows("head").map((r) => Number(r.dataset.cycles)).reduce((a, b) => a + b, 0);
document.getElementById("close-all").click();
out.closed = [rows("op").length, rows("head").length];
document.querySelector("#ops tr.head button").click();
out.opened = [...document.querySelectorAll('#ops button[aria-expanded="true"]')].length;
const filter = document.getElementById("filter");
filter.value = " block2 "; filter.dispatchEvent(new Event("input"));
out.shown = rows("op").map((r) => r.dataset.name);
out.visible = rows("head").map((r) => r.dataset.scope);
out.total = document.querySelector("#ops tfoot td").textContent;
const live = document.querySelector("#live svg"), area = live.getBoundingClientRect();
live.dispatchEvent(new MouseEvent("mousemove", { clientX: area.left + area.width / 2, clientY: area.top + 40 }));
out.live = document.getElementById("live-info").textContent;
const cell = document.querySelector(".map rect"), heatOf = document.getElementById("heat-of");
out.fills = [3, 0, 1, 3].map((k) => {
  heatOf.value = String(k); heatOf.dispatchEvent(new Event("change"));
  return [cell.getAttribute("fill"), document.getElementById("heat-top").textContent];
});
document.querySelector("svg.timeline rect[data-cycles]").dispatchEvent(new MouseEvent("mousemove", { bubbles: true }));
out.bar = document.getElementById("bar-info").textContent;
out.marks = document.querySelectorAll("#ruler span").length;
const before = document.documentElement.dataset.theme;
document.getElementById("theme").click();
out.themes = [before, document.documentElement.dataset.theme].sort();
const map = document.querySelector(".map"), box = map.firstElementChild.getBoundingClientRect();
map.dispatchEvent(new MouseEvent("mousemove", { clientX: box.left + 3, clientY: box.top + 3 }));
out.tile = document.getElementById("tile-info").textContent;
map.dispatchEvent(new MouseEvent("click", { clientX: box.left + 3, clientY: box.top + 3 }));
out.held = document.querySelectorAll("#tile-detail tbody tr").length;
map.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight" }));
out.next = document.getElementById("tile-info").textContent;
const line = document.querySelector("svg.timeline");
line.parentElement.dispatchEvent(new KeyboardEvent("keydown", { key: "+" }));
out.keyed = Number(line.getAttribute("viewBox").split(" ")[2]);
line.parentElement.dispatchEvent(new KeyboardEvent("keydown", { key: "0" }));
line.dispatchEvent(new WheelEvent("wheel", { deltaY: -100, clientX: 300 }));
out.zoomed = Number(line.getAttribute("viewBox").split(" ")[2]);
document.body.innerHTML = "<pre id=probe></pre>";
document.getElementById("probe").textContent = JSON.stringify(out);
</script>
"""


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_page_works_in_a_browser(page, report, tmp_path):
    file = tmp_path / "report.html"
    file.write_text(page.replace("</body>", PROBE + "</body>"), encoding="utf-8")
    done = subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--window-size=1280,1600",
         f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=4000", "--dump-dom", file.as_uri()],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert not console
    found = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stderr[-2000:]
    out = json.loads(found.group(1).replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    assert out["down"] == sorted(out["down"], reverse=True)
    assert out["up"] == sorted(out["up"])
    assert len(out["up"]) == len(report.operations)
    assert out["names"] == sorted(out["names"])
    assert out["scopes"] == [f"block{k}" for k in range(4)]
    assert 0 < out["sums"] <= report.cycles.total
    assert out["closed"][0] < len(report.operations)
    assert out["closed"][1] == 4
    assert out["opened"] == 1
    assert out["shown"]
    assert all("block2" in n for n in out["shown"])
    assert out["visible"] == ["block2"]
    assert out["total"] == f"{len(out['shown'])} operations"
    assert re.fullmatch(r"Step \d+, .+: .+ always live and .+ beside, over all tiles", out["live"])
    first, always, rest, again = out["fills"]
    assert first == again
    assert len({first[1], always[1], rest[1]}) == 3  # each quantity has the scale of what it shows
    assert re.search(r"\((forward|backward|update)\): .+ cycles", out["bar"])
    assert out["marks"] == 5
    assert out["themes"] == ["dark", "light"]
    assert out["tile"].startswith("Tile 0: ")
    assert out["held"] > 0
    assert out["next"].startswith("Tile 1: ")
    assert out["keyed"] == pytest.approx(575)
    assert out["zoomed"] < 1150
