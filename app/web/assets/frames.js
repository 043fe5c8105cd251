// Gradio's sign of loading goes on moving, 60 times a second and unseen, when all is loaded (seen in 6.31). Each frame
// would be taken from the model. So from then on moves come slowly, except while the settings, which are Gradio's, show.

const SLOW_FRAME_MS = 1000;
const drawNow = window.requestAnimationFrame.bind(window);

// Whoever imports this first of all, before Gradio's scripts run, has it in the place of the browser's.
window.requestAnimationFrame = (callback) => {
  const isLoaded = document.getElementById("pc-settings") !== null;
  const isShown = document.body?.classList.contains("pc-shows-settings");
  if (!isLoaded || isShown) return drawNow(callback);
  setTimeout(() => drawNow(callback), SLOW_FRAME_MS);
  return 0;
};

/** For the page's own moves. */
export const drawFrame = drawNow;
