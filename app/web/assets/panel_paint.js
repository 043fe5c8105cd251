// How one cell of the map is painted. Wide cells have letters, narrower ones a shape, the narrowest a colour alone.

const LETTER_PITCH = 16;
const COUNT_PITCH = 22; // where a letter and a number have room
const SHAPE_PITCH = 7;
const WORDS = { c: "cached", h: "held", s: "shared", y: "copied", f: "freed" };

export class BlockPainter {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.readColours();
  }

  /** From the style sheet, which has others by day and by night. */
  readColours() {
    const style = getComputedStyle(document.body);
    const colour = (name) => style.getPropertyValue(name).trim();
    const ofKind = (kind) => Object.fromEntries(Object.entries(WORDS).map(([letter, word]) => [letter, colour(`--${kind}-${word}`)]));
    this.lettered = ofKind("block");
    this.bare = ofKind("small"); // of cells without a letter
    this.ink = Object.fromEntries(Object.entries(this.lettered).map(([letter, fill]) => [letter, inkOn(fill)]));
    this.outline = colour("--free-outline");
  }

  resize(width, height, pitch) {
    this.pitch = pitch;
    this.side = pitch - (pitch >= 9 ? 2 : 1);
    this.canvas.width = Math.round(width * devicePixelRatio);
    this.canvas.height = Math.round(height * devicePixelRatio);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    this.context.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    this.context.textAlign = "center";
    this.context.textBaseline = "alphabetic";
    this.fontSize = null; // another size of the canvas forgets its font
  }

  clear() {
    this.context.clearRect(0, 0, this.canvas.width, this.canvas.height);
  }

  erase(x, y) {
    this.context.clearRect(x, y, this.pitch, this.pitch);
  }

  /** strength: how much of it is left, for a freed block. */
  cell(x, y, letter, refCount, strength) {
    const { context, pitch, side } = this;
    if (letter === "·") {
      this.outlined(x, y, this.outline);
      return;
    }
    const colours = pitch >= LETTER_PITCH ? this.lettered : this.bare;
    context.fillStyle = colours[letter];
    if (letter === "f") {
      this.outlined(x, y, colours.f);
      context.globalAlpha = strength;
      context.fillRect(x, y, side, side);
      context.globalAlpha = 1;
      if (pitch >= LETTER_PITCH && strength > 0.5) this.written(x, y, "f", this.ink.f);
      return;
    }
    context.fillRect(x, y, side, side);
    if (pitch >= LETTER_PITCH) this.written(x, y, this.label(letter, refCount), this.ink[letter]);
    else if (pitch >= SHAPE_PITCH) this.shaped(x, y, letter);
  }

  label(letter, refCount) {
    if (letter !== "s") return letter;
    return this.pitch >= COUNT_PITCH && refCount < 100 ? `s${refCount}` : String(Math.min(refCount, 99));
  }

  outlined(x, y, colour) {
    const { context, side } = this;
    if (this.pitch < SHAPE_PITCH) {
      context.fillStyle = colour;
      context.fillRect(x + side / 2 - 0.5, y + side / 2 - 0.5, 1, 1);
      return;
    }
    context.strokeStyle = colour;
    context.lineWidth = 1;
    context.strokeRect(x + 0.5, y + 0.5, side - 1, side - 1);
  }

  written(x, y, text, ink) {
    const { context, side } = this;
    const size = this.pitch >= COUNT_PITCH && text.length < 3 ? 12 : 10;
    if (size !== this.fontSize) {
      // Only then: a canvas that is given a font has the page's styles worked out anew.
      this.fontSize = size;
      context.font = `600 ${size}px ui-sans-serif, system-ui, sans-serif`;
    }
    context.fillStyle = ink;
    context.fillText(text, x + side / 2, y + side / 2 + size * 0.34);
  }

  /** For eyes that don't tell the colours apart: shared blocks have a hole, copied ones a corner, cached are small. */
  shaped(x, y, letter) {
    const { context, side } = this;
    const third = Math.max(2, Math.round(side / 3));
    if (letter === "s") {
      const at = Math.round((side - third) / 2);
      context.clearRect(x + at, y + at, third, third);
    } else if (letter === "y") {
      context.clearRect(x + side - third, y, third, third);
    } else if (letter === "c") {
      context.clearRect(x, y, side, side);
      context.fillRect(x + 1, y + 1, side - 2, side - 2);
    }
  }
}

/** Black or white, whichever can be read on a colour like #9aa7b4. */
function inkOn(colour) {
  const [red, green, blue] = [1, 3, 5].map((at) => (parseInt(colour.slice(at, at + 2), 16) / 255) ** 2.2);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 ? "#10161c" : "#ffffff";
}
