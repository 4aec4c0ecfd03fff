// How fast an answer comes: time to the first token and tokens per second after it.

import type { Usage } from "./api";
import { describeTime, plural, significant } from "./format";

const kShortestSpan = 0.05; // Seconds; tokens that come in fewer came in one read, and tell nothing of their speed.

export interface Speed {
  firstTokenMs: number | null; // From sending the request; null = no token yet.
  tokensPerSecond: number | null; // Over the tokens after the first; null = too few to tell.
  tokens: number; // Tokens of the answer so far.
  counted: boolean; // True when the server counted `tokens`; false when they are pieces of the stream, about one each.
  promptTokens: number | null;
  cachedTokens: number | null;
}

/** Times one answer. All times are milliseconds of one monotonic clock, given by the caller. */
export class SpeedMeter {
  private firstAt: number | null = null;
  private lastAt = 0;
  private pieces = 0;
  private usage: Usage | null = null;

  constructor(private readonly sentAt: number) {}

  /** A piece of text arrived. */
  onText(now: number): void {
    this.firstAt ??= now;
    this.lastAt = now;
    this.pieces++;
  }

  onUsage(usage: Usage): void {
    this.usage = usage;
  }

  speed(): Speed {
    const counted = this.usage !== null && this.usage.completionTokens > 0;
    const tokens = counted ? this.usage!.completionTokens : this.pieces;
    const seconds = this.firstAt === null ? 0 : (this.lastAt - this.firstAt) / 1000;
    return {
      firstTokenMs: this.firstAt === null ? null : this.firstAt - this.sentAt,
      // The first token's time belongs to the prompt, so n tokens have n - 1 intervals.
      tokensPerSecond: tokens > 1 && seconds >= kShortestSpan ? (tokens - 1) / seconds : null,
      tokens,
      counted,
      promptTokens: this.usage?.promptTokens ?? null,
      cachedTokens: this.usage?.cachedTokens ?? null,
    };
  }
}

/** The figures that are known, in reading order, e.g. ["42.1 tokens/s", "first token 0.21 s", "128 tokens"]. */
export function describeSpeed(speed: Speed): string[] {
  const parts: string[] = [];
  if (speed.tokensPerSecond !== null) parts.push(`${significant(speed.tokensPerSecond)} tokens/s`);
  if (speed.firstTokenMs !== null) parts.push(`first token ${describeTime(speed.firstTokenMs)}`);
  if (speed.tokens > 0) parts.push(`${speed.counted ? "" : "~"}${plural(speed.tokens, "token")}`);
  if (speed.promptTokens !== null && speed.promptTokens > 0) {
    const cached = speed.cachedTokens === null ? "" : `, ${speed.cachedTokens} cached`;
    parts.push(`prompt ${speed.promptTokens}${cached}`);
  }
  return parts;
}
