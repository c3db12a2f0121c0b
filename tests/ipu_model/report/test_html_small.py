"""The page on a phone and without a pointer: nothing is wider than the screen, helps open inside it, Escape closes."""

from __future__ import annotations

import dataclasses
import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import ipu_model
from ipu_model.report.html import render

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PROBE = """<iframe id=page style="width:360px;height:700px;border:0"></iframe><pre id=probe></pre><script>
const frame = document.getElementById("page");
frame.srcdoc = PAGE;
frame.onload = async () => {
  const page = frame.contentDocument, out = { helps: [] }, turn = () => new Promise((go) => setTimeout(go, 30));
  const helps = [...page.querySelectorAll("details.help")];
  for (const help of helps) {
    help.querySelector("summary").click();
    await turn();
    const box = help.querySelector("p").getBoundingClientRect();
    out.helps.push([box.left, box.right, helps.filter((h) => h.open).length]);
  }
  page.dispatchEvent(new frame.contentWindow.KeyboardEvent("keydown", { key: "Escape" }));
  out.open = helps.filter((h) => h.open).length;
  out.focus = page.activeElement.tagName;
  out.tabs = helps.every((h) => h.querySelector("summary").tabIndex === 0);
  page.querySelector(".map").dispatchEvent(new frame.contentWindow.KeyboardEvent("keydown", { key: "ArrowRight" }));
  out.held = page.querySelectorAll("#tile-detail tbody tr").length;
  out.width = page.documentElement.scrollWidth;
  document.getElementById("probe").textContent = JSON.stringify(out);
};
</script>"""


def profile(width: int) -> ipu_model.Report:
    def network(x, *weights):
        for k, w in enumerate(weights):
            with jax.named_scope(f"onnx[a_rather_long_name_of_a_block_{k}/fully_connected]"):
                x = jnp.tanh(x @ w)
        return x

    return ipu_model.profile(network, jnp.ones((64, width)), *[jnp.ones((width, width))] * 3, name=f"mlp {width}")


def too_large() -> ipu_model.Report:
    return ipu_model.profile(jnp.tanh, jax.ShapeDtypeStruct((20_000, 20_000), jnp.float32))


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
@pytest.mark.parametrize("page", ["compared", "too large"])
def test_a_phone_shows_all_of_it(page: str, tmp_path: Path) -> None:
    text = render(profile(256), compare=profile(128)) if page == "compared" else render(too_large())
    file = tmp_path / "frame.html"
    file.write_text(PROBE.replace("PAGE", json.dumps(text).replace("</", "<\\/")), encoding="utf-8")
    done = subprocess.run(
        [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000", "--dump-dom",
         f"--user-data-dir={tmp_path / 'profile'}", file.as_uri()],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    found = re.search(r'<pre id="probe">(.+?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stderr[-2000:]
    out = json.loads(html.unescape(found[1]))
    assert out["held"] > 0
    assert out["width"] <= 360
    assert len(out["helps"]) == text.count('<details class="help">')
    for left, right, opened in out["helps"]:
        assert 0 <= left < right <= 360
        assert opened == 1
    assert (out["open"], out["focus"], out["tabs"]) == (0, "SUMMARY", True)


def test_the_page_says_why_the_phases_are_more_than_a_run():
    def fed(x, w):
        return jnp.tanh(x @ w)

    shapes = [jax.ShapeDtypeStruct((4096, 256), jnp.float16), jax.ShapeDtypeStruct((256, 256), jnp.float16)]
    program = jax.make_jaxpr(fed)(*shapes)
    inputs = [ipu_model.Argument("x", "stream"), ipu_model.Argument("w", "weight")]
    plain, hidden = (
        ipu_model.profile_jaxpr(program, inputs=inputs, options=ipu_model.ModelOptions(overlap_io=io)) for io in (0, 1)
    )
    assert plain.total_cycles == pytest.approx(sum(c.total for c in plain.phases.values()))
    assert "cycles of work in a run of" not in render(plain)
    assert re.search(
        r"cycles of work in a run of [^:]+: [^ ]+ k? ?of host traffic run behind other work", render(hidden)
    )


def test_the_timeline_says_when_each_ipu_has_its_own_clock():
    def two(x):
        with jax.named_scope("a"):
            x = jnp.tanh(x)
        with jax.named_scope("b"):
            return jnp.exp(x)

    nodes = {name: ipu_model.NodePlacement(i, i) for i, name in enumerate("ab")}
    shape = jax.ShapeDtypeStruct((4096,), jnp.float16)
    for pipelined in (False, True):
        placement = ipu_model.Placement(nodes, 2, pipelined)
        page = render(ipu_model.profile(two, shape, placement=placement))
        assert ("One run, each IPU on a clock of its own" in page) == pipelined


def test_a_report_without_a_reason_still_says_that_it_does_not_fit():
    report = dataclasses.replace(too_large(), overflow=None)
    assert not report.fits
    assert "does not fit" in str(report)
