// The table of launches: filter, groups, columns, sorting, all by keyboard. Of thousands of rows only those in view are in the document.
(function () {
  "use strict";
  const section = document.querySelector("section.launches");
  if (!section) return;
  const all = (selector, within) => Array.from(within.querySelectorAll(selector));
  const table = section.querySelector("table[data-sortable]"), body = table.tBodies[0], box = table.closest(".table");
  const tools = section.querySelector(".tools"), own = box.querySelector(".tools");
  const filter = tools.querySelector("input"), rows = tools.querySelector("select"), status = tools.querySelector(".matches");
  const heads = all("thead th", table), keys = heads.map((head) => head.dataset.key), at = (key) => keys.indexOf(key);
  const STEP = 40, choices = window.ncuChoices, thin = "\u202f";

  // Numbers as the toolkit writes them: three digits.
  const count = (value) => String(value).replace(/\B(?=(\d{3})+$)/g, thin);
  function digits(value) {
    if (!value) return "0";
    const rounded = Number(value.toPrecision(3)), decimals = 2 - Math.floor(Math.log10(Math.abs(rounded)));
    return decimals > 0 ? rounded.toFixed(decimals) : count(rounded);
  }
  function duration(us) {
    if (!us) return "n/a";
    const [factor, unit] = [[1e6, "s"], [1e3, "ms"], [1, "µs"]].find(([least]) => us >= least * 0.9995) || [1e-3, "ns"];
    return `${digits(us / factor)}${thin}${unit}`;
  }

  // A kind of launches: its row, what is looked for in it, and its values by column.
  function Kind(row) { this.row = row; this.values = []; }
  Kind.prototype.value = function (column) {
    if (!(column in this.values)) this.values[column] = this.row.cells[column].dataset.v;
    return this.values[column];
  };
  Kind.prototype.number = function (key) { return at(key) < 0 ? 0 : Number(this.value(at(key)) || 0); };
  Kind.prototype.text = function (key) { return at(key) < 0 ? "" : this.row.cells[at(key)].textContent; };
  Kind.prototype.words = function () {
    const named = this.row.cells[0].querySelector("[title]");
    return (this.said = this.said || `${this.row.textContent} ${named ? named.title : ""}`.toLowerCase());
  };
  const kinds = Array.from(body.rows, (row) => new Kind(row)), total = () => (whole = whole || kinds.reduce((sum, kind) => sum + kind.number("time"), 0));
  let whole = 0, order = null;

  // What a row shows: a kind as it is, or some of its launches. Time, share, launches and what a fix saves are theirs.
  const plain = (kind) => ({ kind, us: kind.number("time"), saves: kind.number("saves"), launches: kind.number("launches"), group: "" });
  function some(kind, launches, group) {
    const us = launches.reduce((sum, index) => sum + (order.us[index] || 0), 0), time = kind.number("time");
    return { kind, us, saves: time ? kind.number("saves") * us / time : 0, launches: launches.length, only: launches, group };
  }
  function items() {
    const by = rows.value;
    if (by === "launch") return order.row.map((row, index) => some(kinds[row], [index], ""));
    if (by === "range") {
      const found = new Map();
      order.row.forEach((row, index) => { const key = `${order.range[index]} ${row}`, launches = found.get(key); if (launches) launches.push(index); else found.set(key, [index]); });
      return Array.from(found.values(), (launches) => some(kinds[order.row[launches[0]]], launches, order.ranges[order.range[launches[0]]] || "no range"));
    }
    return kinds.map((kind) => (by ? { ...plain(kind), group: kind.text(by) } : plain(kind)));
  }
  const SUMS = { time: (item) => item.us, share: (item) => item.us, median: (item) => (item.only && item.launches > 1 ? undefined : item.only ? item.us : item.kind.value(at("median"))), saves: (item) => item.saves, launches: (item) => item.launches };
  function value(item, column) {
    const sum = SUMS[keys[column]];
    return sum ? sum(item) : item.kind.value(column);
  }
  function put(row, key, text) { if (at(key) >= 0) row.cells[at(key)].textContent = text; }
  function sums(row, item) {
    put(row, "time", duration(item.us));
    put(row, "share", total() ? `${digits(item.us / total() * 100)}${thin}%` : "");
    put(row, "saves", item.saves ? duration(item.saves) : "–");
    put(row, "launches", count(item.launches));
    if (at("share") >= 0) row.cells[at("share")].style.setProperty("--v", `${item.us / total() * 100}%`);
  }
  function drawn(item) {
    if (!item.only) return item.kind.row;
    const row = item.kind.row.cloneNode(true), alone = item.launches === 1 && item.only[0];
    sums(row, item);
    put(row, "median", alone === false ? "" : duration(item.us));
    if (item.group) put(row, "range", item.group);
    if (alone === false) return row;
    if (order.ranges.length) put(row, "range", order.ranges[order.range[alone]]);
    if (order.stream.length) put(row, "stream", order.stream[alone]);
    const head = row.cells[0], anchor = head.querySelector("a"), page = order.page[alone];
    if (anchor && page) anchor.href = document.querySelector(".leaf") ? `#page-${page}` : `./${page}.html`;
    else if (anchor) anchor.replaceWith(...anchor.childNodes);
    const place = document.createElement("small");
    place.textContent = ` launch ${order.place[alone]}`;
    head.append(place);
    return row;
  }
  function heading(group) {
    const row = document.createElement("tr"), button = document.createElement("button");
    row.className = "group";
    heads.forEach((head, column) => { const cell = document.createElement(column ? "td" : "th"); cell.className = heads[column].classList.contains("n") ? "n" : ""; row.append(cell); });
    button.type = "button";
    button.textContent = group.name;
    button.setAttribute("aria-expanded", group.open);
    button.addEventListener("click", () => { closed.set(group.name, group.open); show(); all("tr.group button", body).find((other) => other.textContent === group.name).focus(); });
    row.cells[0].scope = "rowgroup";
    row.cells[0].append(button);
    sums(row, group);
    return row;
  }

  // What is shown: those that match, sorted, in groups, of which those stay closed that no filter looks into.
  const closed = new Map();
  let sorting = null, held = null, lines = [];
  function compare(a, b) {
    const x = value(a, sorting.column), y = value(b, sorting.column);
    if (x === undefined || y === undefined || x === "" || y === "") return (x === undefined || x === "") - (y === undefined || y === "");
    const sign = heads[sorting.column].classList.contains("n") ? Number(x) - Number(y) : String(x).localeCompare(String(y));
    return sorting.down ? -sign : sign;
  }
  function show() {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean), by = rows.value;
    held = held || items();
    let found = words.length ? held.filter((item) => { const text = item.kind.words(), group = item.group.toLowerCase(); return words.every((word) => text.includes(word) || group.includes(word)); }) : held;
    const sum = found.reduce((all, item) => ({ us: all.us + item.us, saves: all.saves + item.saves }), { us: 0, saves: 0 });
    if (sorting) found = [...found].sort(compare);
    lines = [];
    if (by && by !== "launch") {
      const groups = new Map();
      for (const item of found) {
        const group = groups.get(item.group) || { name: item.group, us: 0, saves: 0, launches: 0, items: [] };
        groups.set(item.group, group);
        group.us += item.us; group.saves += item.saves; group.launches += item.launches;
        group.items.push(item);
      }
      const key = sorting && keys[sorting.column], ranked = Array.from(groups.values());
      if (!key || key in SUMS) ranked.sort((a, b) => { const of = (group) => (key ? SUMS[key](group) : group.us) || 0; return !sorting || sorting.down ? of(b) - of(a) : of(a) - of(b); });
      for (const group of ranked) {
        group.open = closed.has(group.name) ? !closed.get(group.name) : words.length > 0;
        lines.push(() => heading(group));
        if (group.open) for (const item of group.items) lines.push(() => drawn(item));
      }
    } else for (const item of found) lines.push(() => drawn(item));
    body.replaceChildren();
    extend(STEP);
    status.textContent = !words.length ? "" : found.length ? `${found.length} of ${held.length}: ${duration(sum.us)}${sum.saves ? `, ${duration(sum.saves)} to save` : ""}` : "No launch matches";
  }
  // Further rows follow when the end of those that are there comes into view.
  const more = document.createElement("p");
  more.className = "note";
  box.querySelector(".scroll").after(more);
  function extend(count) {
    body.append(...lines.slice(body.rows.length, body.rows.length + count).map((line) => line()));
    more.textContent = body.rows.length < lines.length ? `${lines.length - body.rows.length} more rows` : "";
  }
  new IntersectionObserver(([entry]) => { if (entry.isIntersecting && body.rows.length < lines.length) extend(2 * STEP); }, { rootMargin: "1200px" }).observe(more);

  // Columns that are shown: the first of them, unless the reader chose.
  const style = document.createElement("style"), menu = tools.querySelector(".choose div");
  document.head.append(style);
  const first = keys.filter((key, column) => !heads[column].classList.contains("more"));
  box.classList.add("all");
  let columns = new Set((choices.get("columns") || first.join(" ")).split(" "));
  function dress() { style.textContent = keys.map((key, column) => (column && !columns.has(key) ? `.launches table :is(th, td):nth-child(${column + 1}) { display: none; }` : "")).join(""); }
  keys.slice(1).forEach((key, index) => {
    const label = document.createElement("label"), input = document.createElement("input");
    input.type = "checkbox";
    input.checked = columns.has(key);
    input.addEventListener("change", () => {
      if (input.checked) columns.add(key); else columns.delete(key);
      dress();
      choices.set("columns", keys.every((other) => columns.has(other) === first.includes(other)) ? "" : [...columns].join(" "));
    });
    label.append(input, heads[index + 1].textContent);
    menu.append(label);
  });
  dress();

  const has = { range: () => order.ranges.length, file: () => at("file") >= 0, launch: () => order.row.length > kinds.length };
  all("option", rows).forEach((option) => { option.hidden = option.disabled = option.value in has && option.value !== "file"; });
  filter.value = choices.get("filter");
  rows.value = choices.get("rows") && !choices.get("rows").match(/range|launch/) ? choices.get("rows") : "";
  window.ncuSorts(table, (column, way) => { sorting = way === "none" ? null : { column, down: way === "descending" }; show(); });
  let typed = 0;  // browsers refuse a new address at each key
  filter.addEventListener("input", () => { show(); clearTimeout(typed); typed = setTimeout(() => choices.set("filter", filter.value), filter.value ? 250 : 0); });
  rows.addEventListener("change", () => { held = null; closed.clear(); show(); choices.set("rows", rows.value); });
  own.append(...all("details, [role=status]", tools));
  own.prepend(...all("label", tools));
  const wide = own.querySelector("[data-more]");
  if (wide) wide.remove();
  tools.remove();
  // A copy is of all that match.
  own.querySelector("[data-copy]").addEventListener("click", () => extend(Infinity), true);

  // "/" goes to the filter, arrows from row to row, Escape empties the filter.
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && filter.checkVisibility()) { event.preventDefault(); filter.focus(); filter.select(); }
    if (event.key === "Escape" && menu.parentElement.open) { menu.parentElement.open = false; menu.parentElement.firstElementChild.focus(); }
  });
  document.addEventListener("click", (event) => { if (menu.parentElement.open && !menu.parentElement.contains(event.target)) menu.parentElement.open = false; });
  section.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && event.target === filter && filter.value) { filter.value = ""; filter.dispatchEvent(new Event("input")); }
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || !(event.target === filter || body.contains(event.target))) return;
    const stops = all("tr > :first-child :is(a, button)", body), next = stops.indexOf(event.target) + step;
    if (event.target === filter && step < 0) return;
    event.preventDefault();
    (next < 0 ? filter : stops[Math.min(next, stops.length - 1)] || filter).focus();
  });

  // Further kinds and the launches of each come packed.
  (async () => {
    const block = section.querySelector("script.order");
    order = JSON.parse(await window.ncuUnpack(block.textContent));
    const further = section.querySelector(".further");
    if (further) {
      await window.ncuFilled;
      kinds.push(...Array.from(further.querySelector("tbody").rows, (row) => new Kind(row)));
      further.remove();
      whole = 0;
    }
    all("option", rows).forEach((option) => { option.hidden = option.disabled = option.value in has && !has[option.value](); });
    const kept = choices.get("rows");
    if (kept && all("option:enabled", rows).some((option) => option.value === kept)) rows.value = kept;
    held = null;
    show();
    section.dataset.ready = "1";
    for (let at = 0; at < kinds.length; at += 500) {  // so that the first key need not wait for the words of all
      await new Promise((done) => setTimeout(done));
      kinds.slice(at, at + 500).forEach((kind) => kind.words());
    }
  })();
})();
