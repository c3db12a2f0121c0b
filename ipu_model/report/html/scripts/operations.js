// Operations: a tree of scopes. Sums are over every operation that the filter lets through; only open scopes are rows.
{
  const { data, make, count, size, percent, shortened } = page;
  const table = document.getElementById("ops"), body = table.tBodies[0];
  const filter = document.getElementById("filter"), grouped = document.getElementById("grouped");
  const wanted = () => filter.value.trim().toLowerCase();
  const most = 1000, kinds = data.tree.kinds, first = 4;
  const rows = data.tree.rows.map((r) => ({
    scope: r[0], name: r[1], phase: r[2], operator: r[3], kinds: r.slice(first, first + kinds.length),
    flops: r[first + kinds.length], bytes: r[first + kinds.length + 1], temporary: r[first + kinds.length + 2],
  }));
  const scopes = data.tree.scopes.map(([name, parent]) => ({ name, parent, open: false, scopes: [], rows: [] }));
  scopes.forEach((s) => { if (s.parent >= 0) scopes[s.parent].scopes.push(s); });
  const path = (s) => s.parent > 0 ? `${path(scopes[s.parent])}/${s.name}` : s.name;
  for (const s of scopes) s.path = path(s);
  for (const r of rows) {
    r.cycles = r.kinds.reduce((a, b) => a + b, 0);
    r.path = [scopes[r.scope].path, r.name].filter(Boolean).join("/");
    r.words = `${r.path} ${r.operator} ${r.phase}`.toLowerCase();
    scopes[r.scope].rows.push(r);
  }
  const whole = rows.reduce((a, r) => a + r.cycles, 0);

  // Sums of each scope, from the innermost outwards: a scope stands after its parent in the list.
  const sum = () => {
    const words = wanted();
    for (const s of scopes) Object.assign(s, { count: 0, cycles: 0, flops: 0, bytes: 0, temporary: 0, kinds: kinds.map(() => 0), shown: [] });
    for (const r of rows) if (!words || r.words.includes(words)) { scopes[r.scope].shown.push(r); add(scopes[r.scope], r, 1); }
    for (const s of [...scopes].reverse()) if (s.parent >= 0) add(scopes[s.parent], s, s.count);
  };
  const add = (to, from, n) => {
    to.count += n; to.cycles += from.cycles; to.flops += from.flops; to.bytes += from.bytes;
    to.temporary = Math.max(to.temporary, from.temporary);
    from.kinds.forEach((k, i) => { to.kinds[i] += k; });
  };

  let key = "cycles", down = true, limit = most;
  const rate = (x) => x.cycles ? x.flops / x.cycles : 0;
  const value = (x) => key === "rate" ? rate(x) : key === "share" || key === "kinds" ? x.cycles : x[key] ?? "";
  const order = (a, b) => page.compare(value(a), value(b), down);

  const listed = () => {
    if (!grouped.checked) return scopes.flatMap((s) => s.shown).sort(order).map((x) => [x, 0]);
    const found = [], stack = [[scopes[0], 0]];
    while (stack.length) {
      const [x, depth] = stack.pop();
      if (x !== scopes[0]) found.push([x, depth]);
      if (!x.shown || (x !== scopes[0] && !x.open && !wanted())) continue;
      const inside = [...x.scopes.filter((s) => s.count), ...x.shown].sort(order).reverse();
      stack.push(...inside.map((y) => [y, x === scopes[0] ? 0 : depth + 1]));
    }
    return found;
  };
  const cells = (x) => {
    const bar = make("span", { className: "mini" }, ...kinds.flatMap((k, i) => {
      if (!x.kinds[i]) return [];
      const part = make("i", { className: `k-${k}`, title: `${data.kindNames[k]}: ${count(x.kinds[i])} cycles` });
      part.style.width = `${100 * x.kinds[i] / x.cycles}%`;
      return [part];
    }));
    const number = (text) => make("td", { className: "n" }, text);
    return [number(count(x.cycles)), number(percent(x.cycles, whole)), make("td", {}, bar), number(count(x.flops)),
      number(percent(x.flops, x.cycles * data.peakPerCycle)), number(size(x.bytes)), number(size(x.temporary))];
  };
  const name = (x, depth) => {
    const text = shortened(grouped.checked ? x.name.trim() || (x.name ? "(blank)" : "(itself)") : x.path, 44);
    const cell = make("td", { title: x.path });
    cell.style.paddingLeft = `${8 + 18 * depth}px`;
    if (!x.shown) { cell.append(make("span", { className: "leaf" }), text); return cell; }
    const button = make("button", { type: "button", className: "fold", ariaExpanded: String(x.open || Boolean(wanted())) }, text);
    button.onclick = () => { x.open = !x.open; draw(); document.querySelector(`[data-scope="${CSS.escape(x.path)}"] button`)?.focus(); };
    cell.append(button, make("span", { className: "dim" }, ` ${count(x.count)}`));
    return cell;
  };
  const line = ([x, depth]) => {
    const row = make("tr", { className: x.shown ? "head" : "op" }, name(x, depth), make("td", { title: x.operator ?? "" }, shortened(x.operator ?? "", 40)));
    row.append(make("td", {}, ...(x.phase ? [make("i", { className: `dot p-${x.phase}` }), x.phase] : [])), ...cells(x));
    if (x.shown) row.dataset.scope = x.path; else row.dataset.name = x.path;
    row.dataset.cycles = x.cycles;
    return row;
  };
  const draw = () => {
    const all = listed(), total = scopes[0];
    body.replaceChildren(...all.slice(0, limit).map(line));
    table.tFoot.replaceChildren(make("tr", {}, make("td", {}, `${total.count.toLocaleString("en")} operation${total.count === 1 ? "" : "s"}`), make("td"), make("td"), ...cells(total)));
    const more = document.getElementById("more");
    more.hidden = all.length <= limit;
    more.textContent = `${(all.length - limit).toLocaleString("en")} more rows`;
  };
  const again = () => { limit = most; sum(); draw(); };

  // At first the dearest scopes are open, until there are rows enough to read.
  sum();
  for (let k = 0; k < 12 && listed().length < 30; k += 1) {
    const closed = listed().map(([x]) => x).filter((x) => x.shown && !x.open);
    if (!closed.length) break;
    closed.reduce((a, b) => b.cycles > a.cycles ? b : a).open = true;
  }
  draw();
  filter.oninput = again;
  grouped.onchange = again;
  document.getElementById("more").onclick = () => { limit += most; draw(); };
  for (const [id, open] of [["open-all", true], ["close-all", false]]) {
    document.getElementById(id).onclick = () => { for (const s of scopes) s.open = open; again(); };
  }
  page.sortable(table, (head, way) => { key = head.dataset.key; down = way; draw(); });
}
