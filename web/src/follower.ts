// Keeps the end of a growing page in sight, until the reader scrolls away from it.

const kNearPx = 64; // Closer than this to the end counts as at the end.

export class Follower {
  private following = true;

  constructor(private readonly toEnd: HTMLButtonElement) {
    toEnd.addEventListener("click", () => this.jump());
    addEventListener("scroll", () => this.look(), { passive: true });
    addEventListener("resize", () => this.follow());
    new ResizeObserver(() => this.follow()).observe(document.body); // Banners and editors come and go.
  }

  /** Call after the page grew. */
  follow(): void {
    if (this.following) this.scroll();
    this.look();
  }

  /** Goes to the end and follows from there. */
  jump(): void {
    this.following = true;
    this.scroll();
    this.look();
  }

  private scroll(): void {
    scrollTo({ top: document.documentElement.scrollHeight, behavior: "instant" });
  }

  private look(): void {
    const below = document.documentElement.scrollHeight - innerHeight - scrollY;
    this.following = below < kNearPx;
    this.toEnd.hidden = this.following;
  }
}
