// Canvas helpers: colours come from the style sheet, and what is told apart is told apart by pattern too.

export type Pattern = "solid" | "stripes" | "dots" | "cross";

/** Colours by the names of their custom properties, read once per drawing: the scheme may change. */
export function palette<K extends string>(element: Element, names: readonly K[]): Record<K, string> {
  const style = getComputedStyle(element);
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()])) as Record<
    K,
    string
  >;
}

/** Makes the canvas as large as its box, in device pixels; null when it has no box or no context. */
export function sized(
  canvas: HTMLCanvasElement,
): { context: CanvasRenderingContext2D; width: number; height: number } | null {
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  const context = canvas.getContext("2d");
  if (width === 0 || height === 0 || context === null) return null;
  const ratio = devicePixelRatio;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}

/** A box with a pattern; `ink` on `colour`. */
export function paintBox(
  context: CanvasRenderingContext2D,
  x: number,
  y: number,
  width: number,
  height: number,
  pattern: Pattern,
  colour: string,
  ink: string,
): void {
  context.fillStyle = colour;
  context.fillRect(x, y, width, height);
  if (pattern === "solid" || width < 3) return;
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  context.strokeStyle = context.fillStyle = ink;
  context.lineWidth = 1.2;
  context.beginPath();
  if (pattern === "dots") {
    context.arc(x + width / 2, y + height / 2, Math.max(1, Math.min(width, height) / 5), 0, 2 * Math.PI);
    context.fill();
  } else {
    // Lines of a raster that is fixed on the canvas, so that neighbouring boxes go on from each other.
    const pitch = 6;
    for (let at = Math.floor((x - height) / pitch) * pitch; at < x + width + height; at += pitch) {
      context.moveTo(at, y + height);
      context.lineTo(at + height, y);
      if (pattern === "cross") {
        context.moveTo(at, y);
        context.lineTo(at + height, y + height);
      }
    }
    context.stroke();
  }
  context.restore();
}
