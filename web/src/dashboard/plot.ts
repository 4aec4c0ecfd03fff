// Small line plots of the last minutes: a shape to see at a glance, whose figures stand beside it as text.

const kSpace = "http://www.w3.org/2000/svg";

/** The path of a line from `from` to `to` in a box of width 1 and height 1, y down; null breaks it. */
export function pathOf(times: number[], values: (number | null)[], from: number, to: number, top: number): string {
  let path = "";
  let pen = "M";
  values.forEach((value, i) => {
    const time = times[i];
    if (value === null || time === undefined || time < from) {
      pen = "M";
      return;
    }
    const x = to > from ? (time - from) / (to - from) : 1;
    const y = top > 0 ? 1 - value / top : 1;
    path += `${pen}${x.toFixed(4)} ${y.toFixed(4)}`;
    pen = "L";
  });
  return path;
}

/** A plot that is redrawn in place. */
export class Plot {
  readonly svg = document.createElementNS(kSpace, "svg");
  private readonly path = document.createElementNS(kSpace, "path");

  constructor() {
    this.svg.setAttribute("class", "plot");
    this.svg.setAttribute("viewBox", "0 0 1 1");
    this.svg.setAttribute("preserveAspectRatio", "none");
    this.svg.setAttribute("aria-hidden", "true");
    this.svg.append(this.path);
  }

  draw(times: number[], values: (number | null)[], spanMs: number): void {
    const to = times.at(-1) ?? 0;
    const top = 1.1 * Math.max(...values.map((value) => value ?? 0), 0);
    this.path.setAttribute("d", pathOf(times, values, to - spanMs, to, top));
  }
}
