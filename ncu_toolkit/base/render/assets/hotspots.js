// Source and SASS side by side. Only the lines in view are in the document, so ten thousand instructions scroll as fast as ten.
(function () {
  "use strict";
  const ROW = 20, MARGIN = 4;
  const make = (tag, cls, text) => { const node = document.createElement(tag); if (cls) node.className = cls; if (text !== undefined) node.textContent = text; return node; };
  const percent = (part, whole) => { const share = whole && part ? 100 * part / whole : 0; return share ? (share < 0.01 ? "<0.01 %" : `${share.toFixed(share < 1 ? 2 : 1)} %`) : ""; };
  const si = (n) => { if (n === null || n === undefined) return ""; for (const [f, p] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) if (n >= f) return `${(n / f).toPrecision(3)} ${p}`; return String(n); };

  // A list that draws the rows in view. `rows` are numbers; `paint(node, row)` fills a node.
  class List {
    constructor(label, paint, onChoose) {
      this.rows = []; this.paint = paint; this.onChoose = onChoose; this.at = -1; this.from = 0;
      this.node = make("div", "list");
      this.inner = make("div", "list-inner");
      this.node.append(this.inner);
      this.node.tabIndex = 0;
      this.node.setAttribute("role", "listbox");
      this.node.setAttribute("aria-label", label);
      this.nodes = new Map();
      this.node.addEventListener("scroll", () => this.update(), { passive: true });
      this.node.addEventListener("click", (event) => { const line = event.target.closest(".line"); if (line) this.choose(Number(line.dataset.at), false); });
      this.node.addEventListener("keydown", (event) => {
        const page = Math.max(1, Math.floor(this.node.clientHeight / ROW) - 1);
        const move = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity }[event.key];
        if (event.key === "Enter" && this.at >= 0) { this.onChoose(this.rows[this.at], true); return; }
        if (move === undefined || !this.rows.length) return;
        event.preventDefault();
        this.choose(Math.max(0, Math.min(this.rows.length - 1, (this.at < 0 ? this.from : this.at) + move)), true);
      });
      new ResizeObserver(() => this.update()).observe(this.node);
    }
    set(rows) { this.rows = rows; this.at = -1; this.from = 0; this.inner.style.height = `${rows.length * ROW}px`; this.node.style.maxHeight = `${Math.max(5, rows.length) * ROW + 20}px`; this.node.setAttribute("aria-setsize", rows.length); this.refresh(); }
    refresh() { this.nodes.forEach((node) => node.remove()); this.nodes.clear(); this.update(); }
    update() {
      const first = Math.max(0, Math.floor(this.node.scrollTop / ROW) - MARGIN);
      const last = Math.min(this.rows.length, Math.ceil((this.node.scrollTop + this.node.clientHeight) / ROW) + MARGIN);
      this.nodes.forEach((node, at) => { if (at < first || at >= last) { node.remove(); this.nodes.delete(at); } });
      for (let at = first; at < last; at++) {
        if (this.nodes.has(at)) continue;
        const node = make("div", "line");
        node.style.top = `${at * ROW}px`;
        node.dataset.at = at;
        node.setAttribute("role", "option");
        node.setAttribute("aria-posinset", at + 1);
        node.setAttribute("aria-setsize", this.rows.length);
        node.id = `${this.id}-${at}`;
        this.paint(node, this.rows[at]);
        if (at === this.at) this.mark(node);
        this.nodes.set(at, node);
        this.inner.append(node);
      }
    }
    mark(node) { node.classList.add("chosen"); node.setAttribute("aria-selected", "true"); this.node.setAttribute("aria-activedescendant", node.id); }
    choose(at, reveal) {
      this.at = at;
      if (reveal) this.reveal(at, false);
      this.onChoose(this.rows[at], false);
      this.refresh();
    }
    reveal(at, centre) {
      this.from = at;  // the first arrow key goes on from what is in view
      const top = at * ROW, height = this.node.clientHeight;
      if (centre) this.node.scrollTop = Math.max(0, top - (height - ROW) / 2);
      else if (top < this.node.scrollTop) this.node.scrollTop = top;
      else if (top + ROW > this.node.scrollTop + height) this.node.scrollTop = top + ROW - height;
      this.update();
    }
  }

  function build(host, data) {
    const count = data.sass.length, ranked = data.total > 0;
    const weight = (i) => (ranked ? (data.samples[i] ? data.samples[i].reduce((a, b) => a + b, 0) : 0) : data.executed[i] || 0);
    const weights = Array.from({ length: count }, (_, i) => weight(i));
    const whole = weights.reduce((a, b) => a + b, 0), hottest = Math.max(...weights.length ? weights.slice(0, 50000) : [0], 1);
    const textOf = (file, line) => data.sources[file][line - data.from[file]]; // undefined where the page does not have it
    // Source lines: weight and instructions of each.
    const lines = data.sources.map(() => new Map());
    for (let i = 0; i < count; i++) {
      if (data.file[i] < 0) continue;
      const found = lines[data.file[i]].get(data.line[i]) || { weight: 0, rows: [] };
      found.weight += weights[i];
      found.rows.push(i);
      lines[data.file[i]].set(data.line[i], found);
    }
    const fileWeight = lines.map((map) => Array.from(map.values()).reduce((a, l) => a + l.weight, 0));
    // The pane opens on the place that the card names.
    let file = data.file[data.open], related = new Set([data.open]), relatedLine = data.line[data.open];
    // Who waits for whose result, in both directions.
    const producers = new Map(data.waits), consumers = new Map();
    for (const [row, from] of data.waits) for (const at of from) consumers.set(at, [...(consumers.get(at) || []), row]);
    const opened = new Set(), named = new Set(data.named), live = data.live.length > 0, most = live ? data.live.reduce((a, b) => Math.max(a, b), 0) : 0;

    // Columns that a reader may choose; at first the SASS has those that are its own.
    const sum = (rows, of) => rows.reduce((all, row) => all + (of(row) || 0), 0);
    const columns = [
      { name: "executed", own: true, shown: true, text: (rows) => si(data.executed[rows[0]]) },
      ...(live ? [{ name: "live registers", own: true, shown: true, text: (rows) => String(data.live[rows[0]]), peak: (rows) => data.live[rows[0]] === most }] : []),
      ...data.reasons.map((name, i) => ({ name, text: (rows) => si(sum(rows, (row) => data.samples[row] && data.samples[row][i]) || null) })),
      ...data.counters.map((counter) => ({ name: counter.name, text: (rows) => si(sum(rows, (row) => counter.values[row]) || null) })),
    ];
    const shown = (own) => columns.filter((column) => column.shown && (own || !column.own));
    const cells = (rows, own) => shown(own).map((column) => { const cell = make("span", column.peak && column.peak(rows) ? "ex peak" : "ex", rows.length ? column.text(rows).replace(" ", "") : ""); cell.title = column.name; return cell; });

    const heat = (cell, value, most) => { cell.textContent = percent(value, whole); if (value) cell.style.backgroundColor = `rgba(var(--heat), ${(0.08 + 0.6 * value / most).toFixed(3)})`; };
    const sass = new List("SASS instructions", (node, row) => {
      if (row < 0) { const [from, to] = folds.get(row); node.classList.add("fold"); node.textContent = `${to - from} instructions without samples (choose to unfold)`; return; }
      const share = make("span", "heat");
      heat(share, weights[row], hottest);
      node.append(share, make("span", "no", String(row)), ...cells([row], true), make("span", "tx", data.sass[row]));
      if (named.has(row)) { node.classList.add("named"); node.title = "The verdict or a runner-up points here."; }
      if (related.has(row)) node.classList.add("related");
    }, (row) => {
      if (row < 0) { const [first] = folds.get(row); opened.add(row); fill(); sass.choose(sass.rows.indexOf(first), true); return; }
      describe(row);
      related = new Set([row, ...(producers.get(row) || []), ...(consumers.get(row) || [])]);
      if (data.file[row] >= 0) {
        show(data.file[row]);
        relatedLine = data.line[row];
        const at = source.rows.indexOf(relatedLine);
        if (at >= 0) source.reveal(at, true);
      } else relatedLine = -1;
      source.refresh();
    });
    const lineMost = Math.max(1, ...lines.map((map) => Math.max(0, ...Array.from(map.values(), (l) => l.weight))));
    const source = new List("Source lines", (node, line) => {
      const found = lines[file].get(line), share = make("span", "heat");
      if (found) heat(share, found.weight, lineMost);
      node.append(share, make("span", "no", String(line)), ...cells(found ? found.rows : [], false), make("span", "tx", textOf(file, line) ?? "(source not in the report)"));
      if (line === relatedLine) node.classList.add("related");
    }, (line) => {
      const found = lines[file].get(line);
      relatedLine = line;
      related = new Set(found ? found.rows : []);
      if (found) {
        if (folded.checked || search.value) { const hidden = found.rows.filter((row) => !sass.rows.includes(row)); if (hidden.length) { folded.checked = false; search.value = ""; fill(); } }
        const heaviest = found.rows.reduce((a, b) => (weights[b] > weights[a] ? b : a));
        sass.reveal(sass.rows.indexOf(heaviest), true);
        describeLine(line, found.rows);
      }
      sass.refresh();
    });
    const ns = host.dataset.ns;
    sass.id = `${ns}sass`; source.id = `${ns}source`;

    const tools = make("div", "hot-tools"), search = make("input"), sort = make("select"), folded = make("input"), tally = make("span", "muted"), picker = make("select");
    const labelled = (text, control, after) => { const label = make("label"); label.append(...(after ? [control, text] : [text, control])); return label; };
    search.type = "search"; search.placeholder = "Find ( / ): LDS.128, R12"; search.title = "The browser's own search sees only the lines in view. This one searches all (/).";
    search.setAttribute("aria-label", "Find in SASS and source");
    sort.setAttribute("aria-label", "Order");
    for (const [value, text] of [["program", "program order"], ["hot", "hottest first"]]) sort.append(new Option(text, value));
    folded.type = "checkbox"; folded.checked = ranked && count > 120;
    tally.setAttribute("role", "status");
    data.files.forEach((name, i) => picker.append(new Option(`${name.split("/").pop()} ${percent(fileWeight[i], whole)}`, i)));
    picker.value = file;
    const choose = make("details", "choose"), menu = make("div");
    choose.append(make("summary", "", "Columns"), menu);
    for (const column of columns) {
      const input = make("input");
      input.type = "checkbox"; input.checked = column.shown;
      input.addEventListener("change", () => { column.shown = input.checked; name(); sass.refresh(); source.refresh(); });
      menu.append(labelled(` ${column.name}`, input, true));
    }
    choose.addEventListener("keydown", (event) => { if (event.key === "Escape") { choose.open = false; choose.firstElementChild.focus(); } });
    document.addEventListener("click", (event) => { if (!choose.contains(event.target)) choose.open = false; });
    tools.append(search, sort, ...(ranked ? [labelled(" hide unsampled", folded, true)] : []), ...(data.files.length > 1 ? [labelled("File ", picker)] : []), choose, tally);
    const grid = make("div", "hot-grid"), detail = make("div", "hot-detail muted", "Choose a line to see its stall reasons.");
    detail.setAttribute("aria-live", "polite");
    const sourceHead = make("h3"), sassHead = make("h3");
    const pane = (head, list) => { const box = make("div", "hot-pane"); box.append(head, list.node); return box; };
    function name() {
      const named = (what, place, own) => [make("span", "heat", ranked ? "samples" : "executed"), make("span", "no", place), ...shown(own).map((column) => make("span", "ex", column.name)), make("b", "", what)];
      sourceHead.replaceChildren(...named("Source", "line", false));
      sassHead.replaceChildren(...named("SASS", "index", true));
    }
    name();
    if (named.size) sassHead.title = "A mark shows where the diagnosis points.";
    if (file >= 0) grid.append(pane(sourceHead, source)); else grid.classList.add("alone");
    grid.append(pane(sassHead, sass));
    host.append(tools, grid, detail);

    const sourceOf = (i) => (data.file[i] >= 0 ? textOf(data.file[i], data.line[i]) || "" : "");
    let folds = new Map();
    function fill() {
      const wanted = search.value.trim().toUpperCase();
      let rows = Array.from({ length: count }, (_, i) => i).filter((i) => !wanted || data.sass[i].toUpperCase().includes(wanted) || sourceOf(i).toUpperCase().includes(wanted));
      const hits = rows.length;
      folds = new Map();
      if (sort.value === "hot") rows.sort((a, b) => weights[b] - weights[a] || a - b);
      if (folded.checked && !wanted) {
        if (sort.value === "hot") rows = rows.filter((i) => weights[i] > 0);
        else {
          const shown = [];
          for (let i = 0; i < rows.length;) {
            let j = i;
            while (j < rows.length && weights[j] === 0 && j !== data.open) j++;
            if (j - i > 3 && !opened.has(-i - 1)) { folds.set(-i - 1, [i, j]); shown.push(-i - 1); i = j; } else if (j > i) { while (i < j) shown.push(i++); } else shown.push(i++);
          }
          rows = shown;
        }
      }
      tally.textContent = wanted ? `${hits} of ${count} instructions` : `${count} instructions`;
      sass.set(rows);
    }
    const sourceRows = () => {
      if (file < 0) return [];
      if (data.sources[file].length) return Array.from({ length: data.sources[file].length }, (_, i) => i + data.from[file]);
      return Array.from(lines[file].keys()).sort((a, b) => a - b);
    };
    // Samples by reason and counters of one instruction or of all of a line, behind its heading.
    function tell(head, rows) {
      detail.replaceChildren(head);
      detail.classList.remove("muted");
      const parts = data.reasons.map((reason, i) => [reason, rows.reduce((sum, row) => sum + (data.samples[row] ? data.samples[row][i] : 0), 0)]);
      const sampled = parts.reduce((sum, [, n]) => sum + n, 0);
      const words = parts.filter(([, n]) => n).sort((a, b) => b[1] - a[1]).map(([reason, n]) => `${reason} ${n} (${percent(n, sampled)})`);
      for (const counter of data.counters) { const sum = rows.reduce((all, row) => all + (counter.values[row] || 0), 0); if (sum) words.push(`${counter.name} ${si(sum)}`); }
      if (live) words.push(`live registers ${rows.reduce((a, row) => Math.max(a, data.live[row]), 0)}`);
      detail.append(make("p", "", sampled ? words.join(" · ") : ["no samples", ...words].join(" · ")));
    }
    function describe(row) {
      const head = make("p");
      head.append(make("code", "", data.sass[row]), ` at 0x${data.address[row]}`, data.file[row] >= 0 ? `, ${data.files[data.file[row]].split("/").pop()}:${data.line[row]}` : "", data.executed[row] !== null ? `, executed ${si(data.executed[row])} times by a warp` : "");
      tell(head, [row]);
      for (const [words, ends] of [["waits for the result of", producers.get(row)], ["its result is waited for at", consumers.get(row)]]) {
        if (!ends) continue;
        const line = make("p", "", `${words} `);
        for (const at of ends) {
          const link = make("button", "link", `${at} ${data.sass[at].split(",")[0]}${data.file[at] >= 0 ? ` (${data.files[data.file[at]].split("/").pop()}:${data.line[at]})` : ""}`);
          link.type = "button";
          link.addEventListener("click", () => go(at));
          line.append(link, " ");
        }
        detail.append(line);
      }
    }
    function describeLine(line, rows) {
      const head = make("p");
      head.append(make("code", "", (textOf(file, line) || `line ${line}`).trim()), `, ${data.files[file].split("/").pop()}:${line}, ${rows.length} instructions`);
      tell(head, rows);
    }
    search.addEventListener("input", fill);
    sort.addEventListener("change", () => { fill(); sass.node.scrollTop = 0; });
    // The hottest lines, or instructions where lines are not known, one after the other: by buttons, or n and p.
    const ranks = (file >= 0 ? lines.flatMap((map, f) => Array.from(map, ([line, l]) => ({ f, line, weight: l.weight, rows: l.rows }))) : weights.map((w, i) => ({ f: -1, line: i, weight: w, rows: [i] })))
      .filter((each) => each.weight).sort((a, b) => b.weight - a.weight);
    let rank = Math.max(0, ranks.findIndex((each) => each.rows.includes(data.open)));
    const step = (by) => {
      if (!ranks.length) return;
      rank = (rank + by + ranks.length) % ranks.length;
      const to = ranks[rank];
      if (to.f < 0) { go(to.line); return; }
      show(to.f);
      const at = source.rows.indexOf(to.line);
      source.choose(at, false);
      source.reveal(at, true);
    };
    const back = make("button", "", "‹"), on = make("button", "", "next hottest ›");
    back.type = on.type = "button";
    back.title = "The previous hot line (p)"; back.setAttribute("aria-label", back.title); on.title = "The next hot line (n)";
    back.addEventListener("click", () => step(-1)); on.addEventListener("click", () => step(1));
    if (ranks.length > 1) tools.insertBefore(on, tally), tools.insertBefore(back, on);
    host.addEventListener("keydown", (event) => { if (event.key === "/" && event.target !== search) { event.preventDefault(); search.focus(); } });
    grid.addEventListener("keydown", (event) => { if (!event.ctrlKey && !event.metaKey && !event.altKey && (event.key === "n" || event.key === "p")) step(event.key === "n" ? 1 : -1); });
    folded.addEventListener("change", () => { opened.clear(); fill(); });
    picker.addEventListener("change", () => show(Number(picker.value)));
    function show(to) { if (to !== file) { file = to; picker.value = to; source.set(sourceRows()); } }
    // An instruction, wherever it is: unfolded and found if it is hidden.
    function go(row) {
      if (!sass.rows.includes(row)) { folded.checked = false; search.value = ""; fill(); }
      sass.choose(sass.rows.indexOf(row), false);
      sass.reveal(sass.rows.indexOf(row), true);
    }
    fill();
    source.set(sourceRows());
    if (whole) {
      source.reveal(Math.max(0, source.rows.indexOf(relatedLine)), true);
      sass.reveal(Math.max(0, sass.rows.indexOf(data.open)), true);
    }
    host.dataset.ready = "1";
  }
  let shared = null;  // source text of all pages of the folder, unpacked once
  async function unpack(host) {
    try {
      const data = JSON.parse(await window.ncuUnpack(host.parentElement.querySelector("script.hotdata").textContent));
      if (window.ncuShared) {
        shared = shared || window.ncuUnpack(window.ncuShared.sources).then(JSON.parse);
        const sources = await shared;
        data.from = data.sources.map((at) => sources[at][0]);
        data.sources = data.sources.map((at) => sources[at][1]);
      }
      if (!data.address.length) data.address = data.sass.map((_, i) => (16 * i).toString(16));
      build(host, data);
    } catch (refused) { host.textContent = "This browser cannot unpack the code of this page. A newer one can."; }
  }
  function start() {
    for (const host of document.querySelectorAll(".hotspots:not([data-ready]):not([data-begun])")) {
      if (host.closest("[data-off]")) continue;
      host.dataset.begun = "1";
      unpack(host);
    }
  }
  document.addEventListener("leaf", start);
  start();
})();
