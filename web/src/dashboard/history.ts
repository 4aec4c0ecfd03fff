// The last minutes of the server's gauges, and what follows from the differences of its counters.

import type { ServerState } from "./wire";

export const kHistoryMs = 300_000;
const kShortestSpanMs = 200; // Between two samples; a rate over less is noise.
const kRateOverMs = 5_000;

/** The gauges at one moment; null = nothing happened that could tell. */
export interface Sample {
  atMs: number; // Of the server.
  running: number;
  waiting: number;
  preempted: number;
  tokensIn: number | null; // A second.
  tokensOut: number | null;
  hitRate: number | null;
  stepMs: number | null;
}

export class History {
  private states: ServerState[] = [];
  readonly samples: Sample[] = [];

  /** Takes a new state. False when the server has been started again, so that what was known is void. */
  add(state: ServerState): boolean {
    const last = this.states.at(-1);
    const restarted = last !== undefined && (state.nowMs < last.nowMs || state.totals.steps < last.totals.steps);
    if (restarted) {
      this.states = [];
      this.samples.length = 0;
    } else if (last !== undefined && state.nowMs - last.nowMs < kShortestSpanMs) {
      this.states[this.states.length - 1] = { ...state, nowMs: last.nowMs, totals: last.totals };
      return true;
    }
    this.states.push(state);
    while (state.nowMs - this.states[0]!.nowMs > kHistoryMs) {
      this.states.shift();
      this.samples.shift();
    }
    this.samples.push(this.sampleOf(state, kRateOverMs));
    return !restarted;
  }

  get latest(): Sample | null {
    return this.samples.at(-1) ?? null;
  }

  /** Share of prompt tokens that were found in memory, over all of the history. */
  get hitRate(): number | null {
    const last = this.states.at(-1);
    return last === undefined ? null : this.sampleOf(last, kHistoryMs).hitRate;
  }

  private sampleOf(state: ServerState, overMs: number): Sample {
    const since = this.states.find((old) => state.nowMs - old.nowMs <= overMs) ?? state;
    const before = since === state ? (this.states.at(-2) ?? state) : since;
    const seconds = (state.nowMs - before.nowMs) / 1000;
    const change = (read: (totals: ServerState["totals"]) => number) => read(state.totals) - read(before.totals);
    const ratio = (part: number, whole: number) => (whole > 0 ? part / whole : null);
    return {
      atMs: state.nowMs,
      running: state.running,
      waiting: state.waiting,
      preempted: state.preempted,
      tokensIn: ratio(
        change((totals) => totals.promptTokens),
        seconds,
      ),
      tokensOut: ratio(
        change((totals) => totals.outputTokens),
        seconds,
      ),
      hitRate: ratio(
        change((totals) => totals.cachedTokens),
        change((totals) => totals.promptTokens),
      ),
      stepMs: ratio(
        change((totals) => totals.stepMs),
        change((totals) => totals.steps),
      ),
    };
  }
}
