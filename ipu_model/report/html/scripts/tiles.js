// Tiles: what is under the pointer, what the chosen tile holds, and the quantity that the colours show.
{
  const { data, make, size, count } = page;
  const columns = 64, tileRows = Math.ceil(data.tilesPerIpu / columns);
  // The run-length list of [always live, peak of the rest, highest address, tiles] as one entry per tile.
  const tiles = data.tiles.flatMap(([always, rest, total, n]) => Array(n).fill([always, rest, total]));
  const info = document.getElementById("tile-info"), detail = document.getElementById("tile-detail");
  const maps = [...document.querySelectorAll(".map")];

  const tell = (tile, ipu) => {
    const [always, rest, total] = tiles[tile + ipu * data.tilesPerIpu];
    info.textContent = `Tile ${tile}: ${size(always + rest)} of ${size(data.bytesPerTile)} in use; ${size(always)} always live, ${size(rest)} at its peak beside; highest address ${size(total)}`;
  };
  const rowsOf = (tile, ipu) => data.variables.filter((v) => v[3] === ipu && tile < v[4]);
  const list = (title, heads, rows) => [make("h4", {}, title), make("div", { className: "scroll" }, make("table", {},
    make("thead", {}, make("tr", {}, ...heads.map(([text, css]) => make("th", { className: css }, text)))),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((text, k) => make("td", { className: heads[k][1], title: text }, text)))))))];
  const choose = (tile, ipu) => {
    const held = rowsOf(tile, ipu).map((v) => [...v, v[5] / v[4]]).sort((a, b) => b[8] - a[8]);
    const vertices = data.vertices.filter((v) => tile < v[2]).sort((a, b) => b[3] - a[3]);
    const variables = list(`${held.length} variables on tile ${tile}${data.ipus > 1 ? ` of IPU ${ipu}` : ""}`,
      [["Variable", ""], ["Shape", ""], ["Kind", ""], ["Lives", ""], ["On this tile", "n"]],
      held.slice(0, 100).map(([name, kind, shape, , , , from, to, bytes]) =>
        [page.shortened(name, 56), shape, kind, from < 0 ? "always" : `steps ${from} to ${to}`, size(bytes)]));
    const types = list(`${vertices.length} vertex types`, [["Vertex", ""], ["On a tile", "n"], ["Code", "n"], ["State on a tile", "n"]],
      vertices.slice(0, 100).map(([name, n, on, code, state]) => [name, count(Math.ceil(n / on)), size(code), size(state / on)]));
    detail.replaceChildren(...variables, ...(held.length > 100 ? ["The 100 largest are listed."] : []), ...types);
    if (data.moreVariables) detail.append(make("p", { className: "dim" }, `${data.moreVariables.toLocaleString("en")} smaller variables of the program are in no list.`));
    for (const m of maps) m.querySelector(".chosen")?.remove();
    const mark = document.createElementNS(maps[ipu].querySelector("svg").namespaceURI, "rect");
    const cell = data.cell;
    for (const [k, v] of Object.entries({ class: "chosen", x: tile % columns * cell, y: Math.floor(tile / columns) * cell, width: cell - 1, height: cell - 1 })) mark.setAttribute(k, v);
    maps[ipu].querySelector("svg").append(mark);
    maps[ipu].dataset.chosen = tile;
    tell(tile, ipu);
  };
  for (const map of maps) {
    const ipu = Number(map.dataset.ipu);
    const under = (event) => {
      const box = map.firstElementChild.getBoundingClientRect();
      const column = Math.floor((event.clientX - box.left) / box.width * columns);
      const tile = Math.floor((event.clientY - box.top) / box.height * tileRows) * columns + column;
      return column >= 0 && column < columns && tile >= 0 && tile < data.tilesPerIpu ? tile : null;
    };
    map.onmousemove = (event) => { const tile = under(event); if (tile !== null) tell(tile, ipu); };
    map.onclick = (event) => { const tile = under(event); if (tile !== null) choose(tile, ipu); };
    map.onkeydown = (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[event.key];
      if (!step) return;
      event.preventDefault();
      const from = map.dataset.chosen === undefined ? -step : Number(map.dataset.chosen);
      choose(Math.min(data.tilesPerIpu - 1, Math.max(0, from + step)), ipu);
    };
  }

  // The quantity on the map: colours between the stops of the scale, as the page was drawn with.
  const between = (stops, share) => {
    const at = Math.min(share, stops[stops.length - 1][0]);
    const k = stops.findIndex(([upto], i) => i > 0 && at <= upto);
    const [a, low] = stops[k - 1], [b, high] = stops[k];
    return `rgb(${low.map((x, i) => Math.round(x + (at - a) / (b - a) * (high[i] - x))).join(" ")})`;
  };
  const drawn = new Map([...document.querySelectorAll(".map rect[data-tile]")].map((r) => [r, r.getAttribute("fill")]));
  const amount = ([always, rest, total], which) => [always, rest, total, always + rest][which];
  document.getElementById("heat-of").onchange = (event) => {
    const which = Number(event.target.value);
    const top = Math.max(1, Math.min(data.bytesPerTile, tiles.reduce((a, t) => Math.max(a, amount(t, which)), 0)));
    document.getElementById("heat-top").textContent = size(top);
    for (const [rect, fill] of drawn) {
      const start = Number(rect.closest(".map").dataset.ipu) * data.tilesPerIpu;
      const share = amount(tiles[start + Number(rect.dataset.tile)], which) / top;
      rect.setAttribute("fill", which === 3 ? fill : between(share > 1 ? data.over : data.heat, share));
    }
  };
}
