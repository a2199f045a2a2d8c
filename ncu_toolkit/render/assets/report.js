// What the report's pages do: theme, charts drawn when seen, tabs, sortable and copyable tables, reasons on hover and touch, printing.
(function () {
  "use strict";
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const all = (selector, within) => Array.from((within || document).querySelectorAll(selector));
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);

  // Charts. Specifications hold no colours of text, grid or paper: they follow the theme.
  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const drawn = new Set();
  const LEAST = 240, BELOW = 54;  // pixels of a chart without its legend and labels, and of the labels below it
  function themed(figure, width) {
    const narrow = width < 560;
    const copy = structuredClone(figure), layout = copy.layout;
    const fg = colour("--fg"), muted = colour("--muted"), rule = colour("--rule"), bg = colour("--bg");
    Object.assign(layout, { paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", autosize: true, hovermode: "closest", dragmode: narrow ? false : "zoom" });
    layout.font = Object.assign({ family: colour("--sans"), size: 12, color: fg }, layout.font);
    layout.hoverlabel = { bgcolor: fg, bordercolor: fg, font: { color: bg, size: 12 }, align: "left" };
    for (const key of Object.keys(layout)) {
      if (!/^[xy]axis\d*$/.test(key)) continue;
      layout[key] = Object.assign({ gridcolor: rule, zerolinecolor: rule, linecolor: rule, tickcolor: rule, tickfont: { color: muted, size: 11 } }, layout[key]);
      if (layout[key].title) Object.assign(layout[key].title, { font: { size: 11, color: muted }, standoff: 6 });
      layout[key].fixedrange = narrow;
    }
    for (const shape of layout.shapes || []) shape.line = Object.assign({ color: fg }, shape.line);
    for (const note of layout.annotations || []) note.font = Object.assign({ color: muted }, note.font);
    // Plotly paints the chosen button almost white in every theme, so buttons keep dark text on light ground in both.
    for (const menu of layout.updatemenus || []) Object.assign(menu, { bgcolor: "#d5d9de", bordercolor: rule, font: { color: "#14181d", size: 11 } });
    if (layout.legend && layout.showlegend) {
      // Plotly lays the legend out in columns as wide as its widest entry, within the width of the plot proper.
      const longest = Math.max(...copy.data.map((trace) => (trace.name || "").length));
      const labels = (layout.yaxis && layout.yaxis.categoryarray) || ["0000"];
      const room = width - 24 - 6.2 * Math.max(...labels.map((text) => text.length));
      const lines = Math.ceil(copy.data.length / Math.max(1, Math.floor(room / (44 + 6.2 * longest))));
      layout.margin.b = BELOW + 19 * lines;
      layout.legend.maxheight = 19 * copy.data.length + 20;  // never scrolled
    }
    for (const trace of copy.data) {
      if (trace.error_x) trace.error_x.color = fg;
      if (trace.textfont) trace.textfont.color = muted;
      // Labels are placed for a plot as wide as the page: on a narrower one they would cover each other.
      if (width < 960 && trace.mode === "lines+markers+text") trace.mode = "lines+markers";
    }
    return copy;
  }
  function draw(plot) {
    if (!window.Plotly || plot.closest("[data-off]")) return;
    const block = plot.parentElement.querySelector("script.figure");
    const figure = themed(JSON.parse(block.textContent), plot.clientWidth);
    // A legend of many lines, as on a phone, lengthens its chart in place of squeezing it.
    const given = Number(plot.dataset.given || plot.clientHeight), margin = figure.layout.margin;
    const stretch = () => {
      plot.style.height = `${Math.max(given, Math.min(given, LEAST) + (margin.t || 0) + margin.b)}px`;
      figure.layout.height = plot.clientHeight;
    };
    plot.dataset.given = given;
    stretch();
    drawn.add(plot);
    const options = { responsive: true, displaylogo: false, displayModeBar: false, doubleClick: "reset" };
    const react = () => window.Plotly.react(plot, figure.data, figure.layout, options);
    react().then(() => {
      const legend = plot.querySelector("g.legend rect.bg"), tall = legend ? BELOW + Number(legend.getAttribute("height")) : 0;
      if (!(tall > margin.b + 8)) return null;
      margin.b = tall;  // it took more lines than were guessed
      stretch();
      return react();
    }).then(() => { plot.dataset.drawn = "1"; });
  }
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) { seen.unobserve(entry.target); draw(entry.target); }
  }, { rootMargin: "600px" });
  all(".plot").forEach((plot) => seen.observe(plot));
  const redraw = () => drawn.forEach(draw);

  // Theme.
  const toggle = document.getElementById("theme");
  const label = () => { toggle.textContent = isDark() ? "Light" : "Dark"; toggle.setAttribute("aria-label", `Switch to the ${isDark() ? "light" : "dark"} theme`); };
  toggle.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("ncu-toolkit-theme", root.dataset.theme); } catch (refused) { /* kept for this page only */ }
    label();
    redraw();
  });
  dark.addEventListener("change", () => { label(); redraw(); });
  label();

  // Sizes of a ladder: one panel at a time.
  function choose(field) {
    const chosen = field.querySelector("input:checked");
    for (const input of all("input", field)) {
      const panel = document.getElementById(input.value);
      panel.removeAttribute("data-later");
      panel.toggleAttribute("data-off", input !== chosen);
    }
    const panel = document.getElementById(chosen.value);
    all(".plot", panel).forEach((plot) => (drawn.has(plot) ? window.Plotly.Plots.resize(plot) : seen.observe(plot)));
  }
  for (const field of all(".tabs")) {
    choose(field);
    field.addEventListener("change", () => choose(field));
  }
  // What is in view is drawn at once, so that a picture taken when the page has loaded shows it: an observer answers a frame later.
  for (const plot of all(".plot")) {
    const box = plot.getBoundingClientRect();
    if (box.height && box.top < innerHeight && box.bottom > 0) { seen.unobserve(plot); draw(plot); }
  }

  // Tables: sort by a click or by the keyboard on a heading; what is missing stays last.
  function order(table, column, descending) {
    const body = table.tBodies[0], rows = Array.from(body.rows);
    const key = (row) => row.cells[column].dataset.v;
    const numeric = rows.every((row) => key(row) === undefined || key(row) === "" || !Number.isNaN(Number(key(row))));
    rows.forEach((row, index) => { if (row.dataset.place === undefined) row.dataset.place = index; });
    rows.sort((a, b) => {
      const x = key(a), y = key(b);
      if (x === undefined || y === undefined) return (x === undefined) - (y === undefined) || a.dataset.place - b.dataset.place;
      const sign = numeric ? Number(x) - Number(y) : x.localeCompare(y);
      return (descending ? -sign : sign) || a.dataset.place - b.dataset.place;
    });
    body.append(...rows);
  }
  for (const table of all("table[data-sortable]")) {
    const heads = all("thead th", table);
    heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
      const now = head.getAttribute("aria-sort");
      const next = now === "none" ? (head.classList.contains("n") ? "descending" : "ascending") : now === (head.classList.contains("n") ? "descending" : "ascending") ? (now === "ascending" ? "descending" : "ascending") : "none";
      heads.forEach((other) => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", next);
      if (next === "none") Array.from(table.tBodies[0].rows).sort((a, b) => a.dataset.place - b.dataset.place).forEach((row) => table.tBodies[0].append(row));
      else order(table, column, next === "descending");
    }));
  }
  const asText = (table) => Array.from(table.rows).map((row) => Array.from(row.cells).map((cell) => cell.textContent.trim().replace(/\s+/g, " ")).join("\t")).join("\n");
  for (const button of all("[data-copy]")) {
    button.addEventListener("click", async () => {
      const box = button.closest(".table"), said = box.querySelector(".said"), content = asText(box.querySelector("table"));
      let done = false;
      try { await navigator.clipboard.writeText(content); done = true; } catch (refused) {
        const area = document.createElement("textarea");
        area.value = content;
        document.body.append(area);
        area.select();
        done = document.execCommand("copy");
        area.remove();
      }
      said.textContent = done ? "Copied" : "The browser refused";
      button.focus();
    });
  }
  // In a single file the CSV lies in the page.
  for (const anchor of all("a[data-csv]")) {
    const block = document.getElementById(`csv-${anchor.dataset.csv}`);
    if (block) anchor.href = URL.createObjectURL(new Blob([JSON.parse(block.textContent)], { type: "text/csv" }));
  }

  // Reasons and meanings: the browser's own tooltips neither show on touch nor quickly; this shows the same text at once.
  function explain(within) {
    for (const term of all("button.term", within)) {
      const entry = document.getElementById(term.getAttribute("popovertarget"));
      if (entry) term.title = entry.querySelector("p").textContent;
    }
  }
  explain();
  const balloon = document.createElement("div");
  balloon.id = "balloon";
  balloon.setAttribute("role", "tooltip");
  balloon.hidden = true;
  document.body.append(balloon);
  let owner = null;
  function hide() {
    if (owner) { owner.setAttribute("title", owner.dataset.title); delete owner.dataset.title; owner = null; }
    balloon.hidden = true;
  }
  function show(element) {
    if (owner === element) return;
    hide();
    owner = element;
    element.dataset.title = element.getAttribute("title");
    element.removeAttribute("title");
    balloon.textContent = element.dataset.title;
    balloon.hidden = false;
    const box = element.getBoundingClientRect(), own = balloon.getBoundingClientRect();
    balloon.style.left = `${Math.max(8, Math.min(box.left, innerWidth - own.width - 8))}px`;
    balloon.style.top = `${box.bottom + 6 + own.height > innerHeight ? Math.max(8, box.top - own.height - 6) : box.bottom + 6}px`;
  }
  const told = (event) => (event.target.closest ? event.target.closest("main [title]") : null);
  document.addEventListener("pointerover", (event) => { const element = told(event) || (owner && owner.contains(event.target) ? owner : null); if (element) show(element); else hide(); });
  document.addEventListener("focusin", (event) => { const element = told(event); if (element) show(element); else hide(); });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
  addEventListener("scroll", hide, { passive: true });

  // A single file holds most of its pages packed, so that it opens at once: each is unpacked when it is first turned to.
  const packed = new Map(all("script.packed").map((block) => [block.dataset.page, block]));
  async function unpack(id) {
    const block = packed.get(id), leaf = document.createElement("div");
    packed.delete(id);
    leaf.className = "leaf";
    leaf.id = id;
    try {
      const bytes = Uint8Array.from(atob(block.textContent), (letter) => letter.charCodeAt(0));
      leaf.innerHTML = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
    } catch (refused) {
      leaf.textContent = "This browser cannot unpack this page. A newer one can, or make the report as a folder of pages.";
    }
    block.replaceWith(leaf);
    explain(leaf);
    leaves.push(leaf);
    turn();
  }

  // A single file: the address after # names the page to show.
  const leaves = all(".leaf");
  function turn() {
    const name = location.hash.slice(1), target = name && document.getElementById(name);
    if (name && !target) {
      const id = Array.from(packed.keys()).filter((key) => key === name || `page-${name}`.startsWith(`${key}-`)).sort((a, b) => b.length - a.length)[0];
      if (id) unpack(id);
    }
    const leaf = (target && target.closest(".leaf")) || leaves[0];
    leaves.forEach((other) => other.toggleAttribute("data-off", other !== leaf));
    if (target && target !== leaf) target.scrollIntoView();
    else if (target) scrollTo(0, 0);
    all(".plot", leaf).forEach((plot) => (drawn.has(plot) ? window.Plotly.Plots.resize(plot) : seen.observe(plot)));
    document.dispatchEvent(new CustomEvent("leaf"));
  }
  if (leaves.length) { turn(); addEventListener("hashchange", turn); }

  // Printing shows what is folded, and every chart.
  addEventListener("beforeprint", () => {
    all("details:not(.why)").forEach((part) => { if (!part.open) { part.open = true; part.dataset.opened = "1"; } });
    all(".plot").forEach((plot) => { if (!drawn.has(plot)) draw(plot); });
  });
  addEventListener("afterprint", () => all("details[data-opened]").forEach((part) => { part.open = false; delete part.dataset.opened; }));
  root.dataset.ready = "1";
})();
