// Incremental parser of server-sent events, as the WHATWG HTML standard describes them (section 9.2.6): any of the
// three line ends, comments, several data lines in one event, and events cut anywhere between two reads.
// An event that the stream leaves unfinished is dropped, as the standard asks.

/** One dispatched event. `id` and `retry` mean nothing to a request that is made once, and are skipped. */
export interface ServerEvent {
  event: string; // "" when the server names none.
  data: string;
}

export class SseParser {
  private line = "";
  private afterCr = false;
  private event = "";
  private data: string[] = [];

  /** Takes the next piece of the stream and returns the events that it completes, in order. */
  push(chunk: string): ServerEvent[] {
    const events: ServerEvent[] = [];
    let begin = 0;
    for (let i = 0; i < chunk.length; i++) {
      const c = chunk[i];
      if (this.afterCr) {
        this.afterCr = false;
        if (c === "\n") {
          begin = i + 1;
          continue;
        }
      }
      if (c !== "\n" && c !== "\r") continue;
      this.afterCr = c === "\r";
      this.endLine(this.line + chunk.slice(begin, i), events);
      this.line = "";
      begin = i + 1;
    }
    this.line += chunk.slice(begin);
    return events;
  }

  private endLine(line: string, events: ServerEvent[]): void {
    if (line === "") {
      if (this.data.length > 0) events.push({ event: this.event, data: this.data.join("\n") });
      this.event = "";
      this.data = [];
      return;
    }
    const colon = line.indexOf(":");
    if (colon === 0) return; // A comment; servers send them to keep the connection alive.
    const field = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? "" : line.slice(colon + 1);
    if (value.startsWith(" ")) value = value.slice(1);
    if (field === "data") this.data.push(value);
    if (field === "event") this.event = value;
  }
}
