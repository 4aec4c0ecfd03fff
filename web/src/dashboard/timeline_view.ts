// Draws the timeline: a row for each request, which is a button that explains it. One tab stop; arrow keys go from row
// to row.

import { el } from "../dom";
import { duration, grouped } from "../format";
import { paintBox, palette, sized } from "./paint";
import { barsOf, describeRow, type RequestRow, type SpanKind, type Timeline } from "./timeline";

const kRowsMax = 40;
const kNarrow = 4; // Pixels; steps below are not told apart.
const kInk = ["prefill", "decode", "wait", "lost", "raised"] as const;
type Ink = Record<(typeof kInk)[number], string>;

interface RowElements {
  item: HTMLLIElement;
  button: HTMLButtonElement;
  who: HTMLElement;
  note: HTMLElement;
  canvas: HTMLCanvasElement;
  row: RequestRow;
}

export class TimelineView {
  private readonly rows = new Map<number, RowElements>();
  private current: number | null = null; // The row that Tab reaches.

  constructor(
    private readonly list: HTMLElement,
    private readonly axis: HTMLElement,
    private readonly note: HTMLElement,
    private readonly keys: HTMLCanvasElement[], // Of the legend; data-kind says of what.
    private readonly open: (row: RequestRow) => void,
  ) {
    list.addEventListener("keydown", (event) => this.onKey(event));
    list.addEventListener("focusin", (event) => {
      for (const [number, elements] of this.rows) if (elements.button === event.target) this.setCurrent(number);
    });
  }

  show(timeline: Timeline, windowMs: number): void {
    const all = timeline.rows(windowMs);
    const shown = all.slice(0, kRowsMax);
    const wanted = new Set(shown.map((row) => row.number));
    for (const [number, elements] of this.rows) {
      if (wanted.has(number)) continue;
      elements.item.remove();
      this.rows.delete(number);
    }
    const ink = palette(this.list, kInk);
    shown.forEach((row, index) => {
      const elements = this.rows.get(row.number) ?? this.make(row);
      elements.row = row;
      if (this.list.children[index] !== elements.item)
        this.list.insertBefore(elements.item, this.list.children[index] ?? null);
      this.fill(elements);
      draw(elements.canvas, row, timeline.nowMs, windowMs, ink);
    });
    const first = shown[0]?.number ?? null;
    if (this.current === null || !this.rows.has(this.current)) this.setCurrent(first);
    const more = all.length - shown.length;
    this.note.textContent =
      all.length === 0
        ? "No request has run in this time."
        : more > 0
          ? `The latest ${kRowsMax} of ${grouped(all.length)} requests.`
          : "";
    this.axis.replaceChildren(
      ...[1, 0.5, 0].map((share) => el("span", {}, share === 0 ? "now" : `${duration(windowMs * share)} ago`)),
    );
    this.axis.hidden = all.length === 0;
    for (const key of this.keys) {
      const surface = sized(key);
      if (surface === null) continue;
      paintSpan(surface.context, key.dataset["kind"] as SpanKind, 0, surface.width, surface.height, ink);
    }
  }

  private make(row: RequestRow): RowElements {
    const canvas = el("canvas", { "aria-hidden": "true" });
    const who = el("span", { class: "who" });
    const note = el("span", { class: "state" });
    const button = el("button", { type: "button", tabindex: "-1" }, el("span", { class: "name" }, who, note), canvas);
    const elements = { item: el("li", {}, button), button, who, note, canvas, row };
    button.addEventListener("click", () => this.open(elements.row));
    this.rows.set(row.number, elements);
    return elements;
  }

  private fill({ button, who, note, row }: RowElements): void {
    const name = row.id === null ? `#${row.number}` : shortName(row.id);
    if (who.textContent !== name) who.textContent = name;
    if (note.textContent !== row.state) note.textContent = row.state;
    const words = describeRow(row);
    if (button.getAttribute("aria-label") !== words) {
      button.setAttribute("aria-label", words);
      button.title = words;
    }
  }

  private setCurrent(number: number | null): void {
    const old = this.current === null ? undefined : this.rows.get(this.current);
    old?.button.setAttribute("tabindex", "-1");
    this.current = number;
    if (number !== null) this.rows.get(number)?.button.setAttribute("tabindex", "0");
  }

  private onKey(event: KeyboardEvent): void {
    const buttons = [...this.list.querySelectorAll("button")];
    const at = buttons.findIndex((button) => button === event.target);
    const to =
      event.key === "ArrowDown"
        ? at + 1
        : event.key === "ArrowUp"
          ? at - 1
          : event.key === "Home"
            ? 0
            : event.key === "End"
              ? buttons.length - 1
              : null;
    if (at < 0 || to === null) return;
    event.preventDefault();
    buttons[Math.min(Math.max(to, 0), buttons.length - 1)]?.focus();
  }
}

/** The end of an id tells requests apart; its beginning is the same for all. */
export function shortName(id: string): string {
  const [kind = "", rest = ""] = id.split(/-(.*)/s);
  return rest.length > 8 ? `${kind === "chatcmpl" ? "chat" : kind} …${rest.slice(-6)}` : id;
}

function draw(canvas: HTMLCanvasElement, row: RequestRow, nowMs: number, windowMs: number, ink: Ink): void {
  const surface = sized(canvas);
  if (surface === null) return;
  const { context, width, height } = surface;
  const x = (ms: number) => ((ms - nowMs) / windowMs + 1) * width;
  const narrowMs = (kNarrow * windowMs) / width;
  for (const kind of ["waiting", "preempted", "prefill", "decode"] as const) {
    for (const bar of barsOf(row.spans, kind, narrowMs)) {
      const left = Math.max(x(bar.beginMs), 0);
      const right = Math.min(x(bar.endMs), width);
      if (right <= 0) continue;
      const gap = bar.steps === 1 && right - left > kNarrow ? 1 : 0; // Steps that are wide enough show one by one.
      paintSpan(context, kind, left, Math.max(right - left - gap, 1.5), height, ink);
    }
  }
}

function paintSpan(
  context: CanvasRenderingContext2D,
  kind: SpanKind,
  left: number,
  width: number,
  height: number,
  ink: Ink,
): void {
  const middle = height / 2;
  if (kind === "prefill") {
    paintBox(context, left, 3, width, height - 6, "stripes", ink.prefill, ink.raised);
  } else if (kind === "decode") {
    paintBox(context, left, middle - 4, width, 8, "solid", ink.decode, ink.raised);
  } else {
    context.strokeStyle = kind === "waiting" ? ink.wait : ink.lost;
    context.lineWidth = 2;
    context.beginPath();
    context.setLineDash(kind === "waiting" ? [2, 3] : []);
    if (kind === "waiting") {
      context.moveTo(left, middle);
      context.lineTo(left + width, middle);
    } else {
      // A zigzag between two posts.
      context.moveTo(left + 1, 3);
      context.lineTo(left + 1, height - 3);
      for (let at = left + 1, up = false; at < left + width; at += 5, up = !up) {
        context.lineTo(Math.min(at + 5, left + width), up ? middle - 4 : middle + 4);
      }
    }
    context.stroke();
    context.setLineDash([]);
  }
}
