// Milliseconds from one change of a control to the frame after the instrument's new picture.
([selector, value]) => new Promise((done) => {
  const control = document.querySelector(selector);
  const picture = control.closest(".instrument").querySelector(".picture");
  const began = performance.now();
  const watch = new MutationObserver(() => {
    watch.disconnect();
    const painted = new MessageChannel();
    painted.port1.onmessage = () => done(performance.now() - began);
    requestAnimationFrame(() => painted.port2.postMessage(0));
  });
  watch.observe(picture, { attributes: true, attributeFilter: ["data-query"] });
  if (value === null) return control.click();
  control.value = value;
  control.dispatchEvent(new Event("input", { bubbles: true }));
})
