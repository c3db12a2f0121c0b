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
    return `${k ? n.toPrecision(3) : n} ${units[k]}`;
  };

  // Tiles: the run-length list of [always live, total, tiles] as one entry per tile.
  const tiles = data.tiles.flatMap(([always, total, n]) => Array(n).fill([always, total]));
  const info = document.getElementById("tile-info");
  for (const map of document.querySelectorAll(".map")) {
    map.onmousemove = (event) => {
      const box = map.firstElementChild.getBoundingClientRect();
      const rows = Math.ceil(data.tilesPerIpu / 64);
      const column = Math.floor((event.clientX - box.left) / box.width * 64);
      const tile = Math.floor((event.clientY - box.top) / box.height * rows) * 64 + column;
      const found = tile < data.tilesPerIpu ? tiles[tile + map.dataset.ipu * data.tilesPerIpu] : null;
      if (found) info.textContent = `Tile ${tile}: ${size(found[1])} of ${size(data.bytesPerTile)}, ${size(found[0])} always live`;
    };
  }

  // Operations: sort groups and the rows within each, filter, fold.
  const ops = document.getElementById("ops");
  const value = (row, key) => {
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
    };
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
