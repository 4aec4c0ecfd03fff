// Asks again and again: one round after another, never two at once; not while paused or while nobody looks.

export interface PollerHooks {
  /** One round. Rejects when it failed; `failed` decides what then. */
  round(): Promise<void>;
  /** @return milliseconds until the next try, or null to wait until `kick`. */
  failed(error: unknown): number | null;
}

export class Poller {
  private timer: ReturnType<typeof setTimeout> | null = null;
  private busy = false;
  private again = false;
  private paused = false;
  private hidden = false;

  constructor(
    private readonly hooks: PollerHooks,
    private everyMs: number,
  ) {}

  get running(): boolean {
    return !this.paused && !this.hidden;
  }

  setEvery(ms: number): void {
    this.everyMs = ms;
    this.kick();
  }

  setPaused(paused: boolean): void {
    this.paused = paused;
    this.kick();
  }

  setHidden(hidden: boolean): void {
    this.hidden = hidden;
    this.kick();
  }

  /** Asks now, or as soon as the round under way is over; then at the usual pace. */
  kick(): void {
    if (this.timer !== null) clearTimeout(this.timer);
    this.timer = null;
    if (!this.running) return;
    if (this.busy) this.again = true;
    else void this.run();
  }

  private async run(): Promise<void> {
    this.busy = true;
    this.again = false;
    let wait: number | null = this.everyMs;
    try {
      await this.hooks.round();
      wait = this.everyMs;
    } catch (error) {
      wait = this.hooks.failed(error);
    }
    this.busy = false;
    if (!this.running) return;
    if (this.again) this.kick();
    else if (wait !== null) this.timer = setTimeout(() => this.kick(), wait);
  }
}
