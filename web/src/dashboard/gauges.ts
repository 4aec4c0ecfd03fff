// The tiles with their little plots, and the table of percentiles.

import { el } from "../dom";
import { duration, grouped, percent, plural, significant } from "../format";
import { kHistoryMs, type History, type Sample } from "./history";
import { Plot } from "./plot";
import type { Percentiles, ServerState } from "./wire";

interface Tile {
  name: string;
  value(state: ServerState, history: History): string;
  line?: (sample: Sample) => number | null;
  hint: string;
  missing?: (state: ServerState) => boolean; // The server says nothing of it.
}

function rate(value: number | null | undefined): string {
  if (value == null) return "–";
  return `${value >= 1000 ? grouped(value) : significant(value)} /s`;
}

const kTiles: Tile[] = [
  {
    name: "Running",
    value: (state) => grouped(state.running),
    line: (sample) => sample.running,
    hint: "in execution",
  },
  {
    name: "Waiting",
    value: (state) => grouped(state.waiting),
    line: (sample) => sample.waiting,
    hint: "not yet begun",
  },
  {
    name: "Preempted",
    value: (state) => grouped(state.preempted),
    line: (sample) => sample.preempted,
    hint: "memory was short",
  },
  {
    name: "Tokens in",
    value: (_, history) => rate(history.latest?.tokensIn),
    line: (sample) => sample.tokensIn,
    hint: "prompts begun",
  },
  {
    name: "Tokens out",
    value: (_, history) => rate(history.latest?.tokensOut),
    line: (sample) => sample.tokensOut,
    hint: "generated",
  },
  {
    name: "Cache hits",
    value: (_, history) => (history.hitRate === null ? "–" : percent(history.hitRate)),
    line: (sample) => sample.hitRate,
    hint: "in 5 minutes",
  },
  {
    name: "Step",
    value: (_, history) => (history.latest?.stepMs == null ? "–" : duration(history.latest.stepMs)),
    line: (sample) => sample.stepMs,
    hint: "mean of late",
  },
  {
    name: "Step error",
    value: (state) => percent(state.predictionError ?? 0),
    hint: "of predictions",
    missing: (state) => state.predictionError === null,
  },
];

const kRows: [string, (state: ServerState) => Percentiles][] = [
  ["First token", (state) => state.ttft],
  ["Further tokens", (state) => state.tpot],
  ["Whole answer", (state) => state.e2e],
  ["Step", (state) => state.step],
];

export class Gauges {
  private readonly values = new Map<Tile, { root: HTMLElement; value: HTMLElement; plot: Plot }>();

  constructor(
    tiles: HTMLElement,
    private readonly rows: HTMLElement,
    private readonly window: HTMLElement,
  ) {
    for (const tile of kTiles) {
      const plot = new Plot();
      const value = el("dd", { class: "value" }, "–");
      const root = el("div", { class: "tile" }, el("dt", {}, tile.name), value, el("dd", { class: "hint" }, tile.hint));
      if (tile.line !== undefined) root.append(el("dd", { class: "plot-box", "aria-hidden": "true" }, plot.svg));
      this.values.set(tile, { root, value, plot });
      tiles.append(root);
    }
  }

  show(state: ServerState, history: History): void {
    const times = history.samples.map((sample) => sample.atMs);
    const span = Math.min(kHistoryMs, Math.max((times.at(-1) ?? 0) - (times[0] ?? 0), 10_000));
    for (const [tile, { root, value, plot }] of this.values) {
      root.hidden = tile.missing?.(state) ?? false;
      const text = tile.value(state, history);
      if (value.textContent !== text) value.textContent = text;
      if (tile.line !== undefined) plot.draw(times, history.samples.map(tile.line), span);
    }
    const cell = (ms: number | null) => el("td", {}, ms === null ? "–" : duration(ms));
    this.rows.replaceChildren(
      ...kRows.map(([name, read]) => {
        const { count, p50, p90, p99 } = read(state);
        return el(
          "tr",
          {},
          el("th", { scope: "row" }, name),
          cell(p50),
          cell(p90),
          cell(p99),
          el("td", {}, grouped(count)),
        );
      }),
    );
    const minutes = Math.round(state.latencyWindowS / 60);
    this.window.textContent = `Answers that ended in the last ${plural(minutes, "minute")}; steps of the last ${Math.round(state.stepWindowS)} s.`;
  }
}
