"use strict";
// Keeps the page fresh: fetches what stands in <main>, each interval. See document.rs.
(() => {
  const main = document.getElementById("content");
  const connection = document.getElementById("connection");
  const button = document.getElementById("pause");
  const intervalMs = Number(document.body.dataset.intervalMs);
  const patienceMs = Math.max(5000, 3 * intervalMs);
  let lostSince = null;
  let isPaused = false;
  let timer = null;

  function say(text, isLost) {
    // Told to screen readers: only what is new.
    if (connection.textContent !== text) connection.textContent = text;
    connection.classList.toggle("lost", isLost);
  }

  function isBusy() {
    const selection = window.getSelection();
    return selection !== null && !selection.isCollapsed && main.contains(selection.anchorNode);
  }

  function show(html) {
    const focused = main.contains(document.activeElement) ? document.activeElement.id : "";
    const places = new Map();
    for (const region of main.querySelectorAll(".scroll[id]")) {
      if (region.scrollLeft > 0) places.set(region.id, region.scrollLeft);
    }
    main.innerHTML = html;
    for (const [id, left] of places) {
      const region = document.getElementById(id);
      if (region !== null) region.scrollLeft = left;
    }
    if (focused !== "") document.getElementById(focused)?.focus({ preventScroll: true });
  }

  function clock() {
    return new Date().toLocaleTimeString();
  }

  async function refresh() {
    timer = null;
    if (document.hidden || isPaused) return;
    try {
      const answer = await fetch("/fragment", { cache: "no-store", signal: AbortSignal.timeout(patienceMs) });
      if (!answer.ok) throw new Error(String(answer.status));
      const html = await answer.text();
      lostSince = null;
      if (!isPaused) {
        say("Live", false);
        if (!isBusy()) show(html);
      }
    } catch {
      lostSince ??= clock();
      if (!isPaused) say(`Connection lost since ${lostSince}: the figures are from before`, true);
    }
    plan(lostSince === null ? intervalMs : patienceMs);
  }

  function plan(delayMs) {
    if (timer === null && !isPaused && !document.hidden) timer = setTimeout(refresh, delayMs);
  }

  function stop() {
    if (timer !== null) clearTimeout(timer);
    timer = null;
  }

  document.addEventListener("visibilitychange", () => {
    stop();
    plan(0);
  });

  button.addEventListener("click", () => {
    isPaused = !isPaused;
    button.textContent = isPaused ? "Go on" : "Pause";
    stop();
    if (isPaused) say(`Paused at ${clock()}`, false);
    plan(0);
  });

  button.hidden = false;
  say("Live", false);
  plan(intervalMs);
})();
