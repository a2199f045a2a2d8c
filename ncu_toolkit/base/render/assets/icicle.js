// The step as an icicle: a click or Enter zooms into a block, Escape and Back zoom out, arrow keys go from block to block; and which cause is hatched.
(function () {
  "use strict";
  const box = document.querySelector(".icicle");
  if (!box) return;
  const tiles = Array.from(box.children), choices = window.ncuChoices;
  const number = (tile, name) => Number(tile.style.getPropertyValue(name)), level = (tile) => number(tile, "--l");
  const start = (tile) => number(tile, "--x"), end = (tile) => start(tile) + number(tile, "--w");
  const whole = document.querySelector(".where .zoomed"), index = (tile) => tiles.indexOf(tile);
  let shown = tiles[0];

  // What a block is is shown below the picture: a balloon would hide what is in it.
  const said = document.querySelector(".where .said"), hint = said.textContent, words = new Map();
  for (const tile of tiles) {
    words.set(tile, tile.title);
    tile.setAttribute("aria-description", tile.title);
    tile.setAttribute("aria-level", level(tile) + 1);
    tile.removeAttribute("title");
    tile.tabIndex = tile === tiles[0] ? 0 : -1;
  }
  const tell = (tile) => { said.textContent = words.get(tile) || words.get(document.activeElement) || hint; };
  box.addEventListener("pointerover", (event) => tell(event.target.closest(".tile")));
  box.addEventListener("pointerleave", () => tell(null));
  box.addEventListener("focusin", (event) => tell(event.target));
  box.addEventListener("focusout", () => { said.textContent = hint; });

  // Tiles are in order of depth: what is above one comes before it, what is within it after.
  function above(tile) { for (let at = index(tile) - 1; at >= 0; at--) if (level(tiles[at]) === level(tile) - 1) return tiles[at]; return null; }
  const within = (tile) => { const next = tiles[index(tile) + 1]; return next && level(next) > level(tile) ? next : null; };
  function beside(tile, step) {
    for (let at = index(tile) + step; tiles[at]; at += step) if (level(tiles[at]) === level(tile) && !tiles[at].classList.contains("off")) return tiles[at];
    return null;
  }
  function zoom(tile, step) {
    const from = start(tile), seen = new Set([tile]), deeper = level(tile) > level(shown);
    shown = tile;
    box.style.setProperty("--from", from);
    box.style.setProperty("--span", Math.max(end(tile) - from, 1e-9));
    for (let other = above(tile); other; other = above(other)) seen.add(other);
    for (let at = index(tile) + 1; tiles[at] && level(tiles[at]) > level(tile); at++) seen.add(tiles[at]);
    for (const other of tiles) other.classList.toggle("off", !seen.has(other));
    whole.hidden = tile === tiles[0];
    if (step) choices.set("zoom", tile === tiles[0] ? "" : String(index(tile)), deeper);  // Back goes out of what was zoomed into
  }
  function stop(tile) {
    for (const other of tiles) other.tabIndex = other === tile ? 0 : -1;
    tile.focus({ preventScroll: true });
  }
  const named = () => { const found = /[#&]zoom=(\d+)/.exec(location.hash); return (found && tiles[Number(found[1])]) || tiles[0]; };
  box.addEventListener("click", (event) => {
    const tile = event.target.closest(".tile");
    if (!tile || tile.href) return;
    stop(tile);
    zoom(tile === shown && above(tile) ? above(tile) : tile, true);
  });
  box.addEventListener("keydown", (event) => {
    const tile = event.target.closest(".tile");
    if (!tile || event.ctrlKey || event.metaKey || event.altKey) return;
    const key = event.key, next = { ArrowDown: () => within(tile), ArrowUp: () => above(tile), ArrowRight: () => beside(tile, 1), ArrowLeft: () => beside(tile, -1), Home: () => tiles[0] }[key];
    if (next) {
      event.preventDefault();
      const found = next();
      if (found && found.classList.contains("off")) zoom(tiles[0], true);
      if (found) stop(found);
    } else if ((key === "Enter" || key === " ") && !tile.href) {
      event.preventDefault();
      zoom(tile, true);
    } else if (key === "Escape" && above(shown)) {
      event.preventDefault();
      zoom(above(shown), true);
    }
  });
  whole.addEventListener("click", () => { zoom(tiles[0], true); stop(tiles[0]); });
  addEventListener("popstate", () => zoom(named()));
  zoom(named());

  // The cause that is hatched: chosen above the picture, or by opening it in the list.
  const select = document.querySelector(".shade select");
  if (!select) return;
  const hatch = (cause) => { box.dataset.shown = cause; select.value = cause; };
  select.addEventListener("change", () => { hatch(select.value); choices.set("cause", select.value === "0" ? "" : select.value || "none"); });
  document.addEventListener("click", (event) => {
    const opened = event.target.closest && event.target.closest(".finding[data-cause]:not([open]) > summary");
    if (opened) hatch(opened.parentElement.dataset.cause);
  });
  const kept = choices.get("cause");
  hatch(kept === "none" ? "" : Array.from(select.options).some((option) => option.value === kept) && kept ? kept : "0");
})();
