// The side panel of a chapter: what a paragraph rests on, without leaving it. The page stays where it is; the
// panel closes by its button, by Escape and by going back. On a narrow screen it is a sheet at the bottom.
"use strict";
{
  const panel = document.createElement("aside"), close = document.createElement("button"), body = document.createElement("div");
  panel.id = "side";
  panel.hidden = true;
  panel.tabIndex = -1;
  panel.setAttribute("aria-label", "Derivation and code");
  close.type = "button";
  close.className = "link";
  close.textContent = "Close";
  panel.append(close, body);
  let from = null, place = 0;  // the link that opened it, and where it stood on the screen

  function show(name) {
    const template = document.getElementById(`join-${name}`);
    if (!template) return;
    from?.removeAttribute("aria-expanded");
    from = document.querySelector(`[data-join="${CSS.escape(name)}"]:focus`) ?? document.querySelector(`[data-join="${CSS.escape(name)}"]`);
    from.setAttribute("aria-expanded", "true");
    place = from.getBoundingClientRect().top;
    body.replaceChildren(document.importNode(template.content, true));
    body.querySelectorAll("pre code").forEach(QUANTITIES.inCode);
    panel.hidden = false;
    document.body.dataset.side = "open";
    panel.scrollTop = 0;
    panel.focus({ preventScroll: true });
    const covered = from.getBoundingClientRect().bottom - panel.getBoundingClientRect().top;  // by the sheet
    if (panel.offsetWidth === document.documentElement.clientWidth && covered > 0) scrollBy(0, covered + 12);
  }

  function hide() {
    if (panel.hidden) return;
    panel.hidden = true;
    delete document.body.dataset.side;
    from.removeAttribute("aria-expanded");
    scrollBy(0, from.getBoundingClientRect().top - place);
    from.focus({ preventScroll: true });
  }

  const back = () => (history.state?.join ? history.back() : hide());
  close.addEventListener("click", back);
  document.addEventListener("keydown", ({ key }) => { if (key === "Escape" && !panel.hidden) back(); });
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-join]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    link.focus({ preventScroll: true });
    const state = { ...history.state, join: link.dataset.join };
    history.state?.join ? history.replaceState(state, "") : history.pushState(state, "");
    show(link.dataset.join);  // after the entry above, which keeps where the page stood
  });
  addEventListener("popstate", ({ state }) => (state?.join ? show(state.join) : hide()));
  document.addEventListener("DOMContentLoaded", () => {
    document.body.append(panel);
    if (history.state?.join) show(history.state.join);  // back from the page of the derivation
  });
}
