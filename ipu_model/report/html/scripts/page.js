"use strict";
// What the other scripts share: the figures of the page, numbers for people, and small pieces of the document.
const page = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const wanted = new URLSearchParams(location.search).get("theme");
  root.dataset.theme = wanted || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  document.getElementById("theme").onclick = () => { root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark"; };

  const size = (n) => {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let k = 0;
    while (n >= 1024 && k < 4) { n /= 1024; k += 1; }
    return `${k ? (n >= 100 ? Math.round(n) : Number(n.toPrecision(3))) : Math.round(n)} ${units[k]}`;
  };
  const count = (n) => {
    for (const [limit, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
      if (n >= limit) return `${Number((n / (unit === "k" ? 1e3 : limit)).toPrecision(3))} ${unit}`;
    }
    return n >= 100 || Number.isInteger(n) ? Math.round(n).toLocaleString("en") : String(Number(n.toPrecision(3)));
  };
  const percent = (part, whole) => whole ? `${(100 * part / whole).toFixed(1)} %` : "0.0 %";
  // A long name without its middle: both ends tell more.
  const shortened = (name, most) => name.length <= most ? name : `${name.slice(0, most / 2 - 1)}…${name.slice(-most / 2)}`;

  const make = (tag, fields = {}, ...children) => {
    const node = Object.assign(document.createElement(tag), fields);
    node.append(...children);
    return node;
  };
  const compare = (a, b, down) => (a < b ? -1 : a > b ? 1 : 0) * (down ? -1 : 1);

  // Column heads are buttons: a click, Enter or Space sorts, a second one turns the order round.
  const sortable = (table, sort) => {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = make("button", { type: "button" }, ...head.childNodes);
      head.append(button);
      button.onclick = () => {
        const before = head.getAttribute("aria-sort");
        const down = before ? before !== "descending" : head.classList.contains("n");
        heads.forEach((h) => h.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        sort(head, down, column);
      };
    });
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    sortable(table, (head, down, column) => {
      const cell = (row) => { const c = row.cells[column]; return c.dataset.sort === undefined ? c.textContent : Number(c.dataset.sort); };
      table.tBodies[0].append(...[...table.tBodies[0].rows].sort((a, b) => compare(cell(a), cell(b), down)));
    });
  }
  return { data, size, count, percent, shortened, make, compare, sortable };
})();
