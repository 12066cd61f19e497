// Progress by chapter, from what the pages keep in this browser: questions answered and layers read. It goes nowhere
// else; a file of it can be written and read again.
"use strict";
{
  const OURS = /^(book|predict):/;
  const entries = () => { try { return Object.keys(localStorage).filter((key) => OURS.test(key)).map((key) => [key, localStorage.getItem(key)]); } catch { return []; } };

  function show() {
    const known = entries();
    for (const place of document.querySelectorAll("[data-progress-of]")) {
      const { progressOf: name, checks, number } = place.dataset;
      const answered = known.filter(([key]) => key.startsWith(`book:check:${name}/`)).length;
      const read = known.filter(([key]) => key.startsWith(`book:read:${number}/`)).length;
      const parts = [read && `${read} of 3 layers opened`, answered && `${answered} of ${checks} questions answered`].filter(Boolean);
      place.textContent = parts.length ? `; ${parts.join(", ")}` : "";
    }
  }

  const acts = {
    export() {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([JSON.stringify(Object.fromEntries(entries()), null, 1)], { type: "application/json" }));
      link.download = "postgrad-progress.json";
      link.click();
      URL.revokeObjectURL(link.href);
    },
    import(say) {
      const file = Object.assign(document.createElement("input"), { type: "file", accept: "application/json" });
      file.addEventListener("change", async () => {
        try {
          const found = Object.entries(JSON.parse(await file.files[0].text())).filter(([key, value]) => OURS.test(key) && typeof value === "string");
          for (const [key, value] of found) localStorage.setItem(key, value);
          say.textContent = `${found.length} entries read.`;
          show();
        } catch { say.textContent = "That is no file of progress."; }
      });
      file.click();
    },
  };
  document.addEventListener("DOMContentLoaded", () => {
    const bar = document.querySelector(".progress-acts");
    bar.hidden = false;
    bar.addEventListener("click", ({ target }) => acts[target.dataset.progress]?.(bar.querySelector("[role=status]")));
    show();
  });
}
