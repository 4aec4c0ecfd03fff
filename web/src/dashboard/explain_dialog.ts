// What became of a request, as `kvist explain` says it.

import { ApiError } from "../api";
import { byId, copyText, el } from "../dom";
import { duration, grouped, plural } from "../format";
import { tierPhrase } from "./tiers";
import { describeRow, type RequestRow } from "./timeline";
import { shortName } from "./timeline_view";
import type { Choice, Explained } from "./wire";

export class ExplainDialog {
  private readonly dialog = byId("explain", HTMLDialogElement);
  private readonly title = byId("explain-title", HTMLElement);
  private readonly body = byId("explain-body", HTMLElement);
  private wanted: RequestRow | null = null;

  /** `load` asks the server; `announce` tells screen readers. */
  constructor(
    private readonly load: (id: string) => Promise<Explained>,
    private readonly announce: (text: string) => void,
  ) {
    const copy = byId("explain-copy", HTMLButtonElement);
    copy.addEventListener("click", async () => {
      const id = this.wanted?.id;
      if (id != null && (await copyText(id))) this.announce("Copied");
    });
    this.dialog.addEventListener("click", (event) => {
      if (event.target === this.dialog) this.dialog.close();
    });
    this.dialog.addEventListener("close", () => (this.wanted = null));
  }

  async open(row: RequestRow): Promise<void> {
    this.wanted = row;
    this.title.textContent = row.id ?? `Request ${row.number}`;
    byId("explain-copy", HTMLButtonElement).hidden = row.id === null;
    this.body.replaceChildren(el("p", {}, "Asking the server…"));
    if (!this.dialog.open) this.dialog.showModal();
    let content: HTMLElement[];
    try {
      content = row.id === null ? soFar(row) : report(await this.load(row.id));
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      const unknown = error.status === 404;
      content = [...(unknown ? [] : [el("p", { class: "problem" }, error.message)]), ...soFar(row)];
    }
    if (this.wanted === row) this.body.replaceChildren(...content);
  }
}

/** Of a request that the server has nothing to say of (yet): what this page saw. */
function soFar(row: RequestRow): HTMLElement[] {
  const facts = describeRow(row).split(", ").slice(1);
  const why =
    row.state === "ended"
      ? "The server knows no more of this request. Seen from here:"
      : "This request has not ended. Seen from here so far:";
  return [el("p", {}, why), el("ul", {}, ...facts.map((fact) => el("li", {}, fact)))];
}

function report(request: Explained): HTMLElement[] {
  const total = request.totalMs === null ? "" : ` in ${duration(request.totalMs)}`;
  const error = request.error === null ? "" : `, answered with ${request.error}`;
  const summary = `${request.kind}, ${request.finish}${error}: ${plural(request.outputTokens, "output token")}${total}`;
  const blocks: HTMLElement[] = [el("p", { class: "lead" }, summary)];
  if (request.phases.length > 0) blocks.push(phases(request.phases));
  request.choices.forEach((choice, i) => {
    if (request.choices.length > 1) blocks.push(el("h3", {}, `Choice ${i}`));
    blocks.push(choiceList(choice));
  });
  return blocks;
}

function phases(all: [string, number][]): HTMLElement {
  const most = Math.max(...all.map(([, ms]) => ms));
  const rows = all.map(([name, ms]) => {
    const bar = el("span", { class: `bar ${name}`, "aria-hidden": "true" });
    bar.style.width = `${Math.max((ms / most) * 100, 1)}%`;
    return el(
      "tr",
      {},
      el("th", { scope: "row" }, name),
      el("td", { class: "number" }, duration(ms)),
      el("td", { class: "bars" }, bar),
    );
  });
  return el(
    "table",
    { class: "phases" },
    el("caption", {}, "Where the time went"),
    el(
      "thead",
      { class: "visually-hidden" },
      el("tr", {}, ...["Phase", "Time", "Bar"].map((text) => el("th", { scope: "col" }, text))),
    ),
    el("tbody", {}, ...rows),
  );
}

function choiceList(choice: Choice): HTMLElement {
  const list = el("dl", { class: "facts" });
  const add = (name: string, ...lines: string[]) => {
    list.append(el("dt", {}, name), ...lines.map((line) => el("dd", {}, line)));
  };
  if (choice.tokens.length > 0) add("Tokens", choice.tokens.map(([name, n]) => `${grouped(n)} ${name}`).join(", "));
  if (choice.reused.length > 0) {
    add(
      "Reused",
      ...choice.reused.map((part) => {
        const copied = part.copied ? " (copied, part of a block)" : "";
        const tokens = `${plural(part.tokens, "token")}${copied}`;
        if (part.tier !== "hot") {
          const read = `read from ${tierPhrase(part.tier)}`;
          return part.inMemory && part.msBefore !== null
            ? `${tokens} in memory, ${read} ${duration(part.msBefore)} before`
            : `${tokens} ${read}`;
        }
        const when = part.msBefore === null ? "still running then" : `${duration(part.msBefore)} before`;
        const from = part.from === null ? "an older request" : shortName(part.from);
        return `${tokens} computed by ${from}, ${when}`;
      }),
    );
  }
  if (choice.leader !== null) {
    const { id, tokens, waitedMs } = choice.leader;
    const whom = id === null ? "another request" : shortName(id);
    add("Waited", `${duration(waitedMs)} for ${whom} to read ${plural(tokens, "token")} that both begin with`);
  }
  if (choice.preemptions > 0) add("Preempted", `${plural(choice.preemptions, "time")} for lack of memory`);
  const { count, timeMs, requestsMean, tokensMean } = choice.steps;
  if (count > 0) {
    add(
      "Steps",
      `${grouped(count)} in ${duration(timeMs)}, with ${requestsMean} requests and ${tokensMean} tokens on average`,
    );
  }
  return list;
}
