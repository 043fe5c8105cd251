// Gradio's sign of loading goes on moving, 60 times a second and unseen, when all is loaded (seen in 6.31). Each frame
// would be taken from the model. So from then on moves come slowly, except while the settings, which are Gradio's, show.

const SLOW_FRAME_MS = 1000;
const drawNow = window.requestAnimationFrame.bind(window);
let moves = []; // which the next slow frame has all together

window.requestAnimationFrame = (callback) => {
  const isLoaded = document.getElementById("pc-settings") !== null;
  const isShown = document.body?.classList.contains("pc-shows-settings");
  if (!isLoaded || isShown) return drawNow(callback);
  if (moves.length === 0) setTimeout(drawMoves, SLOW_FRAME_MS);
  moves.push(callback);
  return 0;
};

function drawMoves() {
  const callbacks = moves;
  moves = [];
  callbacks.forEach((callback) => drawNow(callback));
}

/** For the page's own moves. */
window.drawFrame = drawNow;
