// Keeps the page up to date: fetches it again and puts in the sections that changed.
// Without this script the page is whole, and its Refresh link does the same by hand.
"use strict";
(() => {
  const EVERY = 3000;
  const SLOWEST = 30000;
  const trouble = document.getElementById("trouble");
  const button = document.createElement("button");
  let paused = false;
  let pause = EVERY;
  let timer = 0;

  function local(root) {
    for (const each of root.querySelectorAll("time[datetime]")) {
      const at = new Date(each.dateTime);
      each.title = each.textContent;
      each.textContent = at.toLocaleString();
    }
  }

  function isRead(section) {
    // Whoever selects text in a section, or has opened its menu, is not disturbed.
    const chosen = document.getSelection();
    return chosen && !chosen.isCollapsed && section.contains(chosen.anchorNode);
  }

  function place(node, section) {
    // Where the focus is, so that it can be put back on the same link.
    return node && section.contains(node) ? node.getAttribute("href") : null;
  }

  function replace(fresh) {
    const main = document.getElementById("main");
    const wanted = [...fresh.querySelectorAll("[data-live]")];
    const names = new Set(wanted.map((each) => each.id));
    for (const old of main.querySelectorAll("[data-live]")) {
      if (!names.has(old.id)) old.remove();
    }
    let before = null;
    for (const section of wanted) {
      const old = document.getElementById(section.id);
      const text = section.outerHTML;
      if (!old) {
        const added = document.importNode(section, true);
        added.dataset.seen = "";
        local(added);
        if (before) before.after(added); else main.append(added);
        before = added;
      } else {
        if (sources.get(section.id) !== text && !isRead(old)) {
          const focused = place(document.activeElement, old);
          old.replaceChildren(...document.importNode(section, true).childNodes);
          local(old);
          sources.set(section.id, text);
          if (focused) {
            const again = [...old.querySelectorAll("a")].find((a) => a.getAttribute("href") === focused);
            if (again) again.focus({ preventScroll: true });
          }
        }
        before = old;
      }
    }
    const freshness = fresh.getElementById("freshness");
    if (freshness) {
      document.getElementById("freshness").replaceChildren(...freshness.childNodes);
      local(document.getElementById("freshness"));
    }
  }

  async function look() {
    try {
      const answer = await fetch(location.pathname, { cache: "no-store", redirect: "manual" });
      if (answer.type === "opaqueredirect") { location.reload(); return; }
      if (answer.ok) {
        replace(new DOMParser().parseFromString(await answer.text(), "text/html"));
        say("");
        pause = EVERY;
      } else {
        say(`The gateway answers ${answer.status}; what you see is old.`);
        pause = Math.min(SLOWEST, pause * 2);
      }
    } catch {
      say("The gateway does not answer; what you see is old.");
      pause = Math.min(SLOWEST, pause * 2);
    }
    next();
  }

  function say(text) {
    if (trouble.textContent !== text) trouble.textContent = text;
  }

  function next() {
    clearTimeout(timer);
    if (!paused && !document.hidden) timer = setTimeout(look, pause);
  }

  const sources = new Map();
  for (const each of document.querySelectorAll("[data-live]")) sources.set(each.id, each.outerHTML);
  local(document);
  button.type = "button";
  button.id = "pause";
  button.textContent = "Pause updates";
  button.setAttribute("aria-pressed", "false");
  button.addEventListener("click", () => {
    paused = !paused;
    button.setAttribute("aria-pressed", String(paused));
    if (paused) next(); else look();
  });
  document.getElementById("refresh").replaceWith(button);
  document.addEventListener("visibilitychange", () => { if (!document.hidden && !paused) look(); });
  next();
})();
