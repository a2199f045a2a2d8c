// What the report's pages do: theme, charts drawn when seen, tabs, sortable and copyable tables, reasons on hover and touch, printing.
(function () {
  "use strict";
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const all = (selector, within) => Array.from((within || document).querySelectorAll(selector));
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);

  // Packed text: a raw deflate stream, 13 bits in a pair of letters; it may look back into a sample that comes first as a stored block.
  const values = Array.from({ length: 127 }, (_, code) => code - 33 - (code > 34) - (code > 60) - (code > 92));
  function bytes(text) {
    const pairs = text.length >> 1, found = new Uint8Array((13 * pairs >> 3) - text[2 * pairs]);
    for (let pair = 0, at = 0, held = 0, bits = 0; pair < pairs; pair++) {
      held |= (91 * values[text.charCodeAt(2 * pair)] + values[text.charCodeAt(2 * pair + 1)]) << bits;
      for (bits += 13; bits >= 8; bits -= 8, held >>>= 8) found[at++] = held & 255;
    }
    return found;
  }
  async function unpack(text, sample) {
    const body = bytes(text), before = new TextEncoder().encode(sample || ""), n = before.length;
    const parts = n ? [Uint8Array.of(0, n & 255, n >> 8, ~n & 255, (~n >> 8) & 255), before, body] : [body];
    const found = await new Response(new Blob(parts).stream().pipeThrough(new DecompressionStream("deflate-raw"))).arrayBuffer();
    return new TextDecoder().decode(new Uint8Array(found, n));
  }
  window.ncuUnpack = unpack;
  const OLD = "This browser cannot unpack this part of the page. A newer one can.";

  // What a reader chose lives in the address: #size=4096&kernel=naive&guess=3.8. In a single file the address may name a page in its place: there, choices last as long as the file is open.
  const single = document.querySelector(".leaf") !== null;
  const choices = () => location.hash.includes("="), named = () => (choices() ? "" : location.hash.slice(1));
  const chosen = new URLSearchParams(choices() ? location.hash.slice(1) : "");
  function remember(name, value, step) {
    if (value === null) chosen.delete(name); else chosen.set(name, value);
    if (!single || !named() || named() === "page-index") history[step ? "pushState" : "replaceState"](null, "", `#${chosen}`);
  }
  window.ncuChoices = { get: (name) => chosen.get(name) || "", set: (name, value, step) => remember(name, value || null, step) };

  // Charts. Specifications hold no colours of text, grid or paper: they follow the theme. Plotly is fetched and unpacked for the first of them.
  let plotly = null;
  function library() {
    plotly = plotly || (async () => {
      const inline = document.getElementById("charts");
      if (!inline) await new Promise((done, failed) => { const tag = document.createElement("script"); tag.onload = done; tag.onerror = failed; tag.src = `${root.dataset.assets}charts.js`; document.head.append(tag); });
      const block = document.createElement("script");
      block.textContent = await unpack(inline ? inline.textContent : window.ncuCharts);
      document.head.append(block);
    })();
    return plotly;
  }
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
    for (const menu of layout.updatemenus || []) Object.assign(menu, { bgcolor: colour("--surface"), bordercolor: rule, font: { color: fg, size: 11 } }, narrow && menu.type === "buttons" ? { x: 1, xanchor: "right" } : {});
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
      if (trace.colorbar) { trace.colorbar.tickfont = { color: muted, size: 11 }; Object.assign(trace.colorbar.title, { font: { family: layout.font.family, size: 11, color: muted } }); }
      if (trace.line && !trace.line.color) trace.line.color = muted;
      // Labels are placed for a plot as wide as the page: on a narrower one they would cover each other.
      if (width < 960 && trace.mode === "markers+text") trace.mode = "markers";
    }
    return copy;
  }
  async function draw(plot) {
    try { await library(); await filled; } catch (refused) { plot.textContent = OLD; return; }
    if (plot.closest("[data-off]")) return;
    const block = plot.parentElement.querySelector("script.figure");
    const figure = themed(JSON.parse(block.textContent), plot.clientWidth);
    // A legend of many lines, as on a phone, lengthens its chart instead of squeezing it.
    const given = Number(plot.dataset.given || plot.clientHeight), margin = figure.layout.margin;
    const stretch = () => {
      plot.style.height = `${Math.max(given, Math.min(given, LEAST) + (margin.t || 0) + margin.b)}px`;
      figure.layout.height = plot.clientHeight;
    };
    plot.dataset.given = given;
    stretch();
    drawn.add(plot);
    const options = { displaylogo: false, displayModeBar: false, doubleClick: "reset" };
    const react = () => window.Plotly.react(plot, figure.data, figure.layout, options);
    react().then(() => {
      const legend = plot.querySelector("g.legend rect.bg"), tall = legend ? BELOW + Number(legend.getAttribute("height")) : 0;
      if (!(tall > margin.b + 8)) return null;
      margin.b = tall;  // it took more lines than were guessed
      stretch();
      return react();
    }).then(() => {
      all("svg", plot).forEach((svg) => svg.setAttribute("aria-hidden", "true"));  // the summary is their text
      all("svg.main-svg", plot).forEach((svg) => svg.setAttribute("viewBox", `0 0 ${svg.getAttribute("width")} ${svg.getAttribute("height")}`));  // paper may be narrower
      if (figure.links && !plot.dataset.drawn) plot.on("plotly_click", (event) => follow(figure.links, event.points[0]));
      plot.dataset.drawn = "1";
    });
  }
  // A bar or a point opens its rung; the address remembers which, for the way back.
  function follow(links, point) {
    const label = [point.y, point.text, point.customdata, point.data.name].find((name) => name in links);
    if (label === undefined) return;
    if (single) { location.hash = `#page-${links[label].replace(/\.html$/, "")}`; return; }
    remember("kernel", label);
    location.href = `./${links[label]}${asked() ? `#guess=${score()}` : ""}`;
  }
  document.addEventListener("click", (event) => {
    const row = event.target.closest && event.target.closest(".bars a.row");
    if (row) remember("kernel", row.querySelector("b").textContent);
  }, true);
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) { seen.unobserve(entry.target); draw(entry.target); }
  }, { rootMargin: "600px" });
  const redraw = () => drawn.forEach(draw);
  // Plotly's own resizing keeps the margins of the old width, for which a narrow chart has no room.
  let resized = 0;
  addEventListener("resize", () => { clearTimeout(resized); resized = setTimeout(redraw, 120); });

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
    const input = field.querySelector("input:checked");
    for (const other of all("input", field)) {
      const panel = document.getElementById(other.value);
      panel.removeAttribute("data-later");
      panel.toggleAttribute("data-off", other !== input);
    }
    const panel = document.getElementById(input.value);
    all(".plot", panel).forEach((plot) => (drawn.has(plot) ? draw(plot) : seen.observe(plot)));
    return panel;
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
  // A click goes from the direction that is of use, to the other, to the order that was. The address remembers it.
  window.ncuSorts = function (table, sort) {
    const heads = all("thead th", table), name = (table.closest(".table") || table).id;
    function turn(head, next) {
      heads.forEach((other) => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", next);
      sort(heads.indexOf(head), next);
    }
    heads.forEach((head) => head.querySelector("button").addEventListener("click", () => {
      const ways = head.matches(".n, .nc-n") ? ["descending", "ascending", "none"] : ["ascending", "descending", "none"];
      const next = ways[(ways.indexOf(head.getAttribute("aria-sort")) + 1) % 3];
      turn(head, next);
      remember("sort", next === "none" ? null : `${name}.${head.dataset.key}.${next}`);
    }));
    const kept = /^(.*)\.([^.]*)\.(ascending|descending)$/.exec(chosen.get("sort") || ""), head = kept && kept[1] === name && heads.find((other) => other.dataset.key === kept[2]);
    if (head) turn(head, kept[3]);
  };
  function sortable(table) {
    window.ncuSorts(table, (column, next) => {
      if (next !== "none") order(table, column, next === "descending");
      else Array.from(table.tBodies[0].rows).sort((a, b) => a.dataset.place - b.dataset.place).forEach((row) => table.tBodies[0].append(row));
    });
  }
  const asText = (table) => Array.from(table.rows).map((row) => Array.from(row.cells).map((cell) => cell.textContent.trim().replace(/\s+/g, " ")).join("\t")).join("\n");
  function copies(button) {
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
      said.textContent = done ? "Copied" : "The browser refused to copy";
      button.focus();
    });
  }
  // In a single file the CSV lies in the page.
  // The columns beyond a screen wait for their button.
  function widens(button) {
    button.addEventListener("click", () => { button.setAttribute("aria-pressed", button.closest(".table").classList.toggle("all")); });
  }
  async function downloads(anchor) {
    const block = document.getElementById(`csv-${anchor.dataset.csv}`);
    if (block) anchor.href = URL.createObjectURL(new Blob([block.type === "text/plain" ? await unpack(block.textContent) : JSON.parse(block.textContent)], { type: "text/csv" }));
  }

  // A word of the glossary links its entry there; here it opens in place.
  function entry(term) {
    const key = term.hash.slice(6), kept = window.ncuTerms && window.ncuTerms[key], own = document.getElementById(`term-${key}`);
    return kept || (own ? [own.textContent, own.nextElementSibling.innerHTML] : null);
  }
  const box = document.createElement("aside");
  box.id = "entry";
  box.className = "entry";
  box.setAttribute("popover", "");
  box.innerHTML = '<h2></h2><p></p><p class="more"><a>In the glossary</a></p>';
  document.body.append(box);
  document.addEventListener("click", (event) => {
    const term = event.target.closest && event.target.closest("a.term"), found = term && entry(term);
    if (!found || event.ctrlKey || event.metaKey || event.shiftKey || !box.showPopover) return;
    event.preventDefault();
    const [title, body] = box.children;
    title.textContent = found[0];
    body.innerHTML = found[1];
    box.querySelector("a").href = term.href;
    box.setAttribute("aria-label", found[0]);
    hide();
    box.showPopover();
  });
  box.addEventListener("click", (event) => { if (event.target.closest("a")) box.hidePopover(); });

  // Reasons and meanings: the browser's own tooltips neither show on touch nor quickly; this shows the same text at once.
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
  const plain = document.createElement("template");
  function termOf(event) {
    if (box.matches(":popover-open")) return null;
    const element = event.target.closest ? event.target.closest("main [title], main a.term") : null;
    if (element && !element.hasAttribute("title") && element !== owner) {
      const found = entry(element);
      if (!found) return null;
      plain.innerHTML = found[1];
      element.title = plain.content.textContent;
    }
    return element;
  }
  document.addEventListener("pointerover", (event) => { const element = termOf(event) || (owner && owner.contains(event.target) ? owner : null); if (element) show(element); else hide(); });
  document.addEventListener("focusin", (event) => { const element = termOf(event); if (element) show(element); else hide(); });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
  addEventListener("scroll", hide, { passive: true });

  // A section that the address names is opened; its heading offers that address.
  function unfold(name) {
    const target = name && document.getElementById(name), fold = target && target.querySelector(":scope > details.fold");
    if (fold) fold.open = true;
  }
  function anchors(within) {
    for (const section of all("section[id]:has(> .fold:only-child)", within)) {
      const link = document.createElement("a");
      link.className = "anchor";
      link.href = `#${section.id}`;
      link.textContent = "#";
      const summary = section.querySelector(":scope > .fold > summary");
      link.setAttribute("aria-label", `Link to: ${summary.firstElementChild.textContent}`);
      link.addEventListener("click", () => unfold(section.id));
      summary.append(link);
    }
  }

  // What a part of a page needs once it is in the document.
  function dress(within) {
    anchors(within);
    all(".plot", within).forEach((plot) => seen.observe(plot));
    all("table[data-sortable]", within).filter((table) => !table.closest(".launches")).forEach(sortable);
    all("[data-copy]", within).forEach(copies);
    all("[data-more]", within).forEach(widens);
    all("a[data-csv]", within).forEach(downloads);
    // A listing longer than its box opens at its first marked line.
    for (const mark of all(".nc-code pre span.nc-hot:not(.nc-hot ~ .nc-hot)", within)) {
      mark.parentElement.scrollTop = mark.getBoundingClientRect().top - mark.parentElement.getBoundingClientRect().top - 60;
    }
  }
  dress();
  // What is in view is drawn at once, so that a picture taken when the page has loaded shows it: an observer answers a frame later.
  for (const plot of all(".plot")) {
    const box = plot.getBoundingClientRect();
    if (box.height && box.top < innerHeight && box.bottom > 0) { seen.unobserve(plot); draw(plot); }
  }
  const shared = window.ncuShared ? unpack(window.ncuShared.samples).then(JSON.parse) : {};
  async function fill(block, make) {
    const samples = await shared, holder = document.createElement("template");
    try { holder.innerHTML = await unpack(block.textContent, samples[block.dataset.key]); } catch (refused) { holder.innerHTML = `<p class="note">${OLD}</p>`; }
    const parts = Array.from(holder.content.children);
    if (make) make.append(holder.content);
    block.replaceWith(make || holder.content);
    (make ? [make] : parts).forEach(dress);
  }
  // Folded sections are packed: they are filled in once the first screen is drawn.
  const parts = () => all("script.part").map((block) => fill(block));
  const filled = new Promise((done) => requestAnimationFrame(() => setTimeout(() => Promise.all(parts()).then(done))));
  // Paper cannot wait for the script that draws charts: it is fetched once the page is at rest.
  filled.then(() => { if (document.querySelector(".plot")) (window.requestIdleCallback || setTimeout)(() => library().catch(() => null)); });
  window.ncuFilled = filled;

  function sized(field) {
    const labelled = (input) => document.getElementById(input.value).dataset.label === chosen.get("size");
    const input = all("input", field).find(chosen.has("size") ? labelled : (other) => other.defaultChecked);
    if (input) input.checked = true;
    choose(field);
  }
  for (const field of all(".tabs")) {
    sized(field);
    field.addEventListener("change", () => remember("size", choose(field).dataset.label, true));
  }
  // Back and forward go through the sizes that were chosen.
  addEventListener("popstate", () => {
    if (single && named()) return;
    const size = new URLSearchParams(location.hash.slice(1)).get("size");
    if (size === null) chosen.delete("size"); else chosen.set("size", size);
    all(".tabs").forEach(sized);
  });
  filled.then(() => {
    const row = chosen.get("kernel") && all(".panel:not([data-off]) tbody tr").find((each) => each.cells[0].dataset.v === chosen.get("kernel"));
    if (row) row.classList.add("chosen");
    for (const bar of all(".panel:not([data-off]) .bars .row")) if (bar.querySelector("b").textContent === chosen.get("kernel")) bar.classList.add("chosen");
    root.dataset.filled = "1";
  });

  // A single file holds most of its pages packed, so that it opens at once: each is unpacked when it is first turned to.
  const packed = new Map(all("script.packed").map((block) => [block.dataset.page, block]));
  async function open(id) {
    const block = packed.get(id), leaf = document.createElement("div");
    packed.delete(id);
    leaf.className = "leaf";
    leaf.id = id;
    await fill(block, leaf);
    leaves.push(leaf);
    turn();
  }

  // A single file: the address after # names the page to show.
  const leaves = all(".leaf");
  function turn() {
    const name = named(), target = name && document.getElementById(name);
    if (name && !target) {
      const id = Array.from(packed.keys()).filter((key) => key === name || `page-${name}`.startsWith(`${key}-`)).sort((a, b) => b.length - a.length)[0];
      if (id) open(id);
    }
    const leaf = (target && target.closest(".leaf")) || leaves[0];
    leaves.forEach((other) => other.toggleAttribute("data-off", other !== leaf));
    unfold(name);
    if (target && target !== leaf) target.scrollIntoView();
    else if (target) scrollTo(0, 0);
    all(".plot", leaf).forEach((plot) => (drawn.has(plot) ? draw(plot) : seen.observe(plot)));
    document.dispatchEvent(new CustomEvent("leaf"));
  }
  if (leaves.length) { turn(); addEventListener("hashchange", turn); }
  else { unfold(named()); addEventListener("hashchange", () => unfold(named())); }

  // Guess first: verdicts stay hidden until the reader has named the bottleneck and the gain.
  const guess = document.getElementById("guess"), score = () => chosen.get("guess") || "0.0";
  const asked = () => chosen.has("guess");
  function ask() {
    root.toggleAttribute("data-guess", asked());
    guess.setAttribute("aria-pressed", asked());
    const [right, all] = score().split(".");
    guess.textContent = asked() ? `Guessing: ${right} of ${all} right` : "Guess first";
  }
  guess.addEventListener("click", () => { remember("guess", asked() ? null : "0.0"); ask(); });
  document.addEventListener("click", (event) => {
    const button = event.target.closest && event.target.closest(".guess button"), form = button && button.parentElement;
    if (!form) return;
    const picked = ["cause", "gain"].map((name) => form.querySelector(`[data-ask="${name}"] input:checked`));
    const status = form.querySelector("[role=status]");
    if (picked.includes(null)) { status.textContent = "Choose a bottleneck and a gain first."; return; }
    const hits = picked.filter((input) => input.hasAttribute("data-right")).length, [right, all] = score().split(".").map(Number);
    status.textContent = hits === 2 ? "Both right." : hits ? `${picked[0].hasAttribute("data-right") ? "The bottleneck" : "The gain"} is right.` : "Neither is right.";
    button.disabled = true;
    form.parentElement.closest(".leaf, main").dataset.answered = "1";
    remember("guess", `${right + hits}.${all + 2}`);
    ask();
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest && event.target.closest("a[href]");
    if (link && asked() && !single && /\.html$/.test(link.href)) link.hash = `guess=${score()}`;
  }, true);
  ask();

  // The glossary's filter: entries whose title or text has every word.
  for (const filter of all("input[data-filter]")) {
    filter.addEventListener("input", () => {
      const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean), body = filter.closest(".leaf, main");
      for (const section of all("section:has(dl.entries)", body)) {
        let left = 0;
        for (const term of all("dt", section)) {
          const text = `${term.textContent} ${term.nextElementSibling.textContent}`.toLowerCase(), off = !words.every((word) => text.includes(word));
          for (let each = term; each && (each === term || each.tagName === "DD"); each = each.nextElementSibling) each.hidden = off;
          left += off ? 0 : 1;
        }
        section.hidden = !left;
      }
    });
  }

  // Printing shows what is folded, and every chart. Lists of everything stay as the reader left them.
  addEventListener("beforeprint", () => {
    const long = `${["ruled-out", "rule-section", "figures", "reproduce"].map((id) => `[id$="${id}"]`)}, [id$="verdict"] .fold details`;
    all("details:not(.why, .columns)").forEach((part) => { if (!part.open && !part.closest(".chart, .bars, .roofs") && !part.closest(long)) { part.open = true; part.dataset.opened = "1"; } });
    all(".plot").forEach((plot) => { if (!drawn.has(plot)) draw(plot); });
  });
  addEventListener("afterprint", () => all("details[data-opened]").forEach((part) => { part.open = false; delete part.dataset.opened; }));
  root.dataset.ready = "1";
})();
