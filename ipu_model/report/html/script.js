"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const wanted = new URLSearchParams(location.search).get("theme");
  root.dataset.theme = wanted || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  document.getElementById("theme").onclick = () => { root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark"; };

  const size = (n) => {
    const units = ["B", "KiB", "MiB", "GiB"];
    let k = 0;
    while (n >= 1024 && k < 3) { n /= 1024; k += 1; }
    return `${k ? (n >= 100 ? Math.round(n) : n.toPrecision(3)) : n} ${units[k]}`;
  };

  // Tiles: the run-length list of [always live, peak of the rest, highest address, tiles] as one entry per tile.
  const tiles = data.tiles.flatMap(([always, rest, total, n]) => Array(n).fill([always, rest, total]));
  const info = document.getElementById("tile-info");
  for (const map of document.querySelectorAll(".map")) {
    map.onmousemove = (event) => {
      const box = map.firstElementChild.getBoundingClientRect();
      const rows = Math.ceil(data.tilesPerIpu / 64);
      const column = Math.floor((event.clientX - box.left) / box.width * 64);
      const tile = Math.floor((event.clientY - box.top) / box.height * rows) * 64 + column;
      const found = tile < data.tilesPerIpu ? tiles[tile + map.dataset.ipu * data.tilesPerIpu] : null;
      if (found) info.textContent = `Tile ${tile}: ${size(found[2])} of ${size(data.bytesPerTile)}; ${size(found[0])} always live, ${size(found[1])} at its peak beside`;
    };
  }

  // The quantity on the map: colours between the stops of the scale, as the page was drawn with.
  const between = (stops, share) => {
    const at = Math.min(share, stops[stops.length - 1][0]);
    const k = stops.findIndex(([upto], i) => i > 0 && at <= upto);
    const [a, low] = stops[k - 1], [b, high] = stops[k];
    return `rgb(${low.map((x, i) => Math.round(x + (at - a) / (b - a) * (high[i] - x))).join(" ")})`;
  };
  const drawn = new Map([...document.querySelectorAll(".map rect")].map((r) => [r, r.getAttribute("fill")]));
  document.getElementById("heat-of").onchange = (event) => {
    const which = Number(event.target.value);
    for (const [rect, fill] of drawn) {
      const first = Number(rect.closest(".map").dataset.ipu) * data.tilesPerIpu;
      const share = tiles[first + Number(rect.dataset.tile)][which] / data.bytesPerTile;
      rect.setAttribute("fill", which === 2 ? fill : between(share > 1 ? data.over : data.heat, share));
    }
  };

  // Liveness: the stretch of steps under the pointer.
  const live = document.querySelector("#live svg"), cursor = document.getElementById("live-cursor");
  const liveInfo = document.getElementById("live-info");
  live.onmousemove = (event) => {
    const box = live.getBoundingClientRect(), wide = live.viewBox.baseVal.width;
    const share = ((event.clientX - box.left) / box.width * wide - data.liveLeft) / (wide - data.liveLeft - 10);
    if (share < 0 || share > 1 || !data.live.points.length) return;
    const step = share * data.live.steps;
    const found = data.live.points.findLast(([at]) => at <= step) ?? data.live.points[0];
    const x = data.liveLeft + share * (wide - data.liveLeft - 10);
    cursor.setAttribute("x1", x); cursor.setAttribute("x2", x);
    liveInfo.textContent = `Step ${found[0]}, ${data.live.names[found[2]]}: ${size(data.live.always)} always live and ${size(found[1])} beside, over all tiles`;
  };

  // Operations: sort groups and the rows within each, filter, fold.
  const ops = document.getElementById("ops");
  const value = (row, key) => {
    if (key === "rate") return Number(row.dataset.cycles) ? row.dataset.flops / row.dataset.cycles : 0;
    const text = row.dataset[key === "share" || key === "kinds" ? "cycles" : key] ?? row.dataset.name;
    return Number.isNaN(Number(text)) || text === "" ? text : Number(text);
  };
  const order = (key, down) => (a, b) => {
    const x = value(a, key), y = value(b, key);
    return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1);
  };
  const grouped = document.getElementById("grouped");
  const allRows = [...ops.querySelectorAll("tr.op")];
  const home = new Map(allRows.map((row) => [row, row.parentElement]));
  const flat = document.createElement("tbody");
  let sorted = { key: "cycles", down: true };
  const arrange = () => {
    const by = order(sorted.key, sorted.down);
    ops.classList.toggle("flat", !grouped.checked);
    if (grouped.checked) {
      flat.remove();
      for (const row of [...allRows].sort(by)) home.get(row).append(row);
      const groups = [...new Set(home.values())].sort(by);
      ops.append(...groups);
    } else {
      flat.append(...[...allRows].sort(by));
      ops.append(flat);
    }
  };
  const heads = [...ops.querySelectorAll("th")];
  for (const head of heads) {
    head.onclick = () => {
      sorted = { key: head.dataset.key, down: sorted.key === head.dataset.key ? !sorted.down : head.classList.contains("n") };
      heads.forEach((h) => h.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", sorted.down ? "descending" : "ascending");
      arrange();
    };
  }
  grouped.onchange = arrange;
  document.getElementById("filter").oninput = (event) => {
    const words = event.target.value.toLowerCase();
    for (const row of allRows) row.classList.toggle("hidden", !row.dataset.name.toLowerCase().includes(words));
    for (const group of new Set(home.values())) group.hidden = !group.querySelector("tr.op:not(.hidden)");
  };
  for (const button of ops.querySelectorAll("tr.head button")) {
    button.onclick = () => {
      const closed = button.closest("tbody").classList.toggle("closed");
      button.setAttribute("aria-expanded", String(!closed));
    };
  }

  // Other tables: sort by the data-sort attribute, or by text.
  for (const table of document.querySelectorAll("table.sortable")) {
    table.querySelectorAll("th").forEach((head, column) => {
      head.onclick = () => {
        const down = head.getAttribute("aria-sort") !== "descending";
        table.querySelectorAll("th").forEach((h) => h.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const cell = (row) => { const c = row.cells[column]; return c.dataset.sort === undefined ? c.textContent : Number(c.dataset.sort); };
        const rows = [...table.tBodies[0].rows].sort((a, b) => (cell(a) < cell(b) ? -1 : cell(a) > cell(b) ? 1 : 0) * (down ? -1 : 1));
        table.tBodies[0].append(...rows);
      };
    });
  }

  // Timeline: zoom and move by the view box.
  const line = document.querySelector("svg.timeline");
  if (line) {
    line.setAttribute("preserveAspectRatio", "none");
    const [, , width, height] = line.getAttribute("viewBox").split(" ").map(Number);
    line.style.height = `${height}px`;
    let left = 0, span = width, from = null;
    const show = () => {
      span = Math.min(width, Math.max(width / 5000, span));
      left = Math.min(width - span, Math.max(0, left));
      line.setAttribute("viewBox", `${left} 0 ${span} ${height}`);
      rule();
    };
    const ruler = document.getElementById("ruler"), barInfo = document.getElementById("bar-info");
    const rule = () => {
      const whole = data.end / data.clock, last = (left + span) / width * whole;
      const [unit, factor] = last >= 1 ? ["s", 1] : last >= 1e-3 ? ["ms", 1e3] : ["\u00b5s", 1e6];
      const digits = Math.max(0, 2 - Math.floor(Math.log10(span / width * whole * factor)));
      ruler.replaceChildren(...[0, 0.25, 0.5, 0.75, 1].map((share) => {
        const mark = document.createElement("span");
        mark.style.left = `${100 * share}%`;
        mark.textContent = `${((left + span * share) / width * whole * factor).toFixed(digits)} ${unit}`;
        return mark;
      }));
    };
    line.addEventListener("mousemove", (event) => {
      const tip = event.target.querySelector?.("title");
      if (tip) barInfo.textContent = tip.textContent;
    });
    const at = (event) => { const box = line.getBoundingClientRect(); return (event.clientX - box.left) / box.width; };
    line.addEventListener("wheel", (event) => {
      event.preventDefault();
      const point = left + at(event) * span;
      span *= event.deltaY > 0 ? 1.25 : 0.8;
      span = Math.min(width, Math.max(width / 5000, span));
      left = point - at(event) * span;
      show();
    }, { passive: false });
    line.onpointerdown = (event) => { from = left + at(event) * span; line.setPointerCapture(event.pointerId); };
    line.onpointermove = (event) => { if (from !== null) { left = from - at(event) * span; show(); } };
    line.onpointerup = () => { from = null; };
    line.ondblclick = () => { left = 0; span = width; show(); };
    show();
  }
  root.dataset.ready = "true";
})();
