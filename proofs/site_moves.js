// Milliseconds from each of `moves` changes of an instrument's control to the frame after the swap.
async (moves) => {
  const wait = () => new Promise((done) => document.addEventListener(
    "htmx:after:swap", () => requestAnimationFrame(done), { once: true }));
  const took = [];
  for (let i = 0; i < moves; i++) {
    const slider = document.querySelector(".instrument input[type=range]");
    const other = document.querySelector(
      ".instrument input[type=radio]:not(:checked), .instrument [data-key=a], .instrument [data-key=u]");
    const begun = performance.now(), there = wait();
    if (slider) {
      slider.value = +slider.value >= +slider.max ? slider.min : +slider.value + +slider.step;
      slider.dispatchEvent(new Event("input", { bubbles: true }));
    } else other.click();
    await there;
    took.push(performance.now() - begun);
  }
  return took;
}
