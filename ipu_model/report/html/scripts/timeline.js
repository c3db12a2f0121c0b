// Timeline: zoom and move by the view box, with the wheel, the buttons or the keys.
{
  const { data, make } = page;
  const line = document.querySelector("svg.timeline");
  line.setAttribute("preserveAspectRatio", "none");
  const [, , width, height] = line.getAttribute("viewBox").split(" ").map(Number);
  line.style.height = `${height}px`;
  let left = 0, span = width, from = null;
  const ruler = document.getElementById("ruler"), info = document.getElementById("bar-info");
  const rule = () => {
    const whole = data.end / data.clock, last = (left + span) / width * whole;
    const [unit, factor] = last >= 1 ? ["s", 1] : last >= 1e-3 ? ["ms", 1e3] : ["\u00b5s", 1e6];
    const digits = Math.min(20, Math.max(0, 2 - Math.floor(Math.log10(span / width * whole * factor))));
    ruler.replaceChildren(...[0, 0.25, 0.5, 0.75, 1].map((share) => {
      const mark = make("span", {}, `${((left + span * share) / width * whole * factor).toFixed(digits)} ${unit}`);
      mark.style.left = `${100 * share}%`;
      return mark;
    }));
  };
  const show = () => {
    span = Math.min(width, Math.max(width / 5000, span));
    left = Math.min(width - span, Math.max(0, left));
    line.setAttribute("viewBox", `${left} 0 ${span} ${height}`);
    rule();
  };
  const zoom = (factor, share = 0.5) => {
    const point = left + share * span;
    span = Math.min(width, Math.max(width / 5000, span * factor));
    left = point - share * span;
    show();
  };
  const reset = () => { left = 0; span = width; show(); };
  const at = (event) => { const box = line.getBoundingClientRect(); return (event.clientX - box.left) / box.width; };
  const tell = (event) => { const tip = event.target.querySelector?.("title"); if (tip) info.textContent = tip.textContent; };
  line.addEventListener("mousemove", tell);
  line.addEventListener("click", tell);
  line.addEventListener("wheel", (event) => { event.preventDefault(); zoom(event.deltaY > 0 ? 1.25 : 0.8, at(event)); }, { passive: false });
  line.onpointerdown = (event) => { from = left + at(event) * span; line.setPointerCapture(event.pointerId); };
  line.onpointermove = (event) => { if (from !== null) { left = from - at(event) * span; show(); } };
  line.onpointerup = () => { from = null; };
  line.ondblclick = reset;
  const keys = {
    "+": () => zoom(0.5), "-": () => zoom(2), "0": reset,
    ArrowLeft: () => { left -= span / 8; show(); }, ArrowRight: () => { left += span / 8; show(); },
  };
  line.parentElement.onkeydown = (event) => { if (keys[event.key]) { event.preventDefault(); keys[event.key](); } };
  for (const button of document.querySelectorAll("[data-zoom]")) button.onclick = () => keys[button.dataset.zoom]();
  show();
}
document.documentElement.dataset.ready = "true";
