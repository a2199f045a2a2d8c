// Runs before the first paint: the chosen theme, and that scripts run at all. `#theme=dark` in the address wins, then the last choice.
(function () {
  "use strict";
  var root = document.documentElement;
  root.classList.add("js");
  var wanted = (location.hash.match(/theme=(dark|light)/) || [])[1];
  try { wanted = wanted || localStorage.getItem("ncu-toolkit-theme"); } catch (refused) { /* storage may be refused for files */ }
  if (wanted === "dark" || wanted === "light") root.dataset.theme = wanted;
})();
