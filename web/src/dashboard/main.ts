// The dashboard: asks the server what it is doing and shows it.

import "../style.css";
import "./dashboard.css";
import { ApiError, getJson, type ApiOptions } from "../api";
import { Banner, type BannerContent } from "../banner";
import { byId } from "../dom";
import { loadKey, loadRate, saveKey, saveRate } from "../store";
import { ExplainDialog } from "./explain_dialog";
import { Gauges } from "./gauges";
import { History } from "./history";
import { MemoryView } from "./memory_view";
import { Poller } from "./poller";
import { Timeline } from "./timeline";
import { TimelineView } from "./timeline_view";
import { TenantsView } from "./tenants_view";
import { TreeView } from "./tree_view";
import { parseExplained, parseMemory, parseState, parseSteps, parseUsage, type ServerState } from "./wire";

const kAwayMs = 2000; // Between two tries while the server is away.
const kMemoryEveryMs = 2000; // The memory is the largest of the answers,
const kMemoryShare = 20; // so that it may take a twentieth of the time at most.
const kUsageEveryMs = 10_000;

class Dashboard {
  private key = loadKey();
  private state: ServerState | null = null;
  private memoryDueAt = 0;
  private usageDueAt = 0;
  private problem: BannerContent | null = null;
  private readonly history = new History();
  private readonly timeline = new Timeline();

  private readonly banner = new Banner(byId("banner", HTMLElement));
  private readonly status = byId("status", HTMLElement);
  private readonly model = byId("model", HTMLElement);
  private readonly live = byId("live", HTMLElement);
  private readonly pause = byId("pause", HTMLButtonElement);
  private readonly rate = byId("rate", HTMLSelectElement);
  private readonly window = byId("window", HTMLSelectElement);
  private readonly gauges = new Gauges(
    byId("tiles", HTMLElement),
    byId("percentiles", HTMLElement),
    byId("percentiles-window", HTMLElement),
  );
  private readonly explain = new ExplainDialog(
    async (id) => parseExplained(await this.get(`kvist/requests/${encodeURIComponent(id)}`)),
    (text) => this.announce(text),
  );
  private readonly timelineView = new TimelineView(
    byId("timeline", HTMLElement),
    byId("timeline-axis", HTMLElement),
    byId("timeline-note", HTMLElement),
    [...document.querySelectorAll<HTMLCanvasElement>("canvas[data-kind]")],
    (row) => void this.explain.open(row),
  );
  private readonly memoryView = new MemoryView(byId("tiers", HTMLElement), byId("owner", HTMLSelectElement));
  private readonly treeView = new TreeView(
    byId("tree", HTMLElement),
    byId("tree-note", HTMLElement),
    byId("expand-all", HTMLButtonElement),
    byId("collapse-all", HTMLButtonElement),
  );
  private readonly tenantsView = new TenantsView(() => {
    this.usageDueAt = 0;
    this.poller.kick();
  });
  private readonly poller = new Poller(
    { round: () => this.round(), failed: (error) => this.failed(error) },
    Number(this.rate.value) * 1000,
  );

  start(): void {
    const kept = loadRate();
    if ([...this.rate.options].some((option) => option.value === kept)) this.rate.value = kept;
    this.rate.addEventListener("change", () => {
      saveRate(this.rate.value);
      this.poller.setEvery(Number(this.rate.value) * 1000);
    });
    let paused = false;
    this.pause.addEventListener("click", () => {
      paused = !paused;
      this.pause.textContent = paused ? "Resume" : "Pause";
      this.live.dataset["state"] = paused ? "paused" : "live";
      this.live.textContent = paused ? "paused" : "live";
      this.announce(paused ? "Paused" : "Live");
      this.poller.setPaused(paused);
    });
    document.addEventListener("visibilitychange", () => this.poller.setHidden(document.hidden));
    this.window.addEventListener("change", () => this.showTimeline());
    const redraw = () => {
      this.showTimeline();
      this.memoryView.draw();
    };
    addEventListener("resize", redraw);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    this.poller.setHidden(document.hidden);
    this.poller.setEvery(Number(this.rate.value) * 1000);
  }

  private get(path: string): Promise<unknown> {
    const api: ApiOptions = { base: document.baseURI, key: this.key };
    return getJson(path, api);
  }

  /** One look at the server. */
  private async round(): Promise<void> {
    const state = parseState(await this.get("kvist/state"));
    if (!this.history.add(state)) this.timeline.clear(); // Started again: other steps under the same numbers.
    const since = this.timeline.lastStep;
    const steps = parseSteps(await this.get(since === null ? "kvist/steps" : `kvist/steps?since=${since}`));
    this.timeline.addSteps(steps);
    this.timeline.addLive(state.requests, state.nowMs);
    this.state = state;
    this.recovered();
    this.showState(state);
    if (performance.now() >= this.memoryDueAt) await this.lookAtMemory();
    if (!state.keepsUsage) this.tenantsView.hide();
    else if (performance.now() >= this.usageDueAt) await this.lookAtUsage();
  }

  private async lookAtMemory(): Promise<void> {
    const began = performance.now();
    const memory = parseMemory(await this.get("kvist/memory"));
    this.memoryView.show(memory);
    this.treeView.show(memory);
    const took = performance.now() - began;
    this.memoryDueAt = began + Math.max(kMemoryEveryMs, kMemoryShare * took);
  }

  private async lookAtUsage(): Promise<void> {
    this.tenantsView.show(parseUsage(await this.get(this.tenantsView.path(Date.now()))));
    this.usageDueAt = performance.now() + kUsageEveryMs;
  }

  private showState(state: ServerState): void {
    if (this.model.textContent !== state.model) this.model.textContent = state.model;
    this.gauges.show(state, this.history);
    this.showTimeline();
  }

  private showTimeline(): void {
    if (this.state !== null) this.timelineView.show(this.timeline, Number(this.window.value) * 1000);
  }

  // ---- When it does not work

  private failed(error: unknown): number | null {
    if (!(error instanceof ApiError)) {
      this.show({ tone: "error", message: `Something in this page went wrong: ${String(error)}` });
      console.error(error);
      return null;
    }
    this.live.dataset["state"] = "away";
    if (error.kind === "unauthorized") {
      this.live.textContent = "locked";
      const message = this.key === "" ? "This server asks for an API key." : error.message;
      const onKey = (key: string) => {
        this.key = key;
        saveKey(key);
        this.problem = null;
        this.poller.kick();
      };
      this.show({ tone: "error", message, onKey });
      return null;
    }
    this.live.textContent = "away";
    const message =
      error.status === 403
        ? error.message
        : error.status === 404
          ? "This server has no dashboard data. It may be an older one."
          : `${error.message} What is shown is from before. Waiting for it.`;
    // Once, so that screen readers do not hear it again and again.
    if (this.problem?.message !== message) this.show({ tone: "error", message });
    return kAwayMs;
  }

  private recovered(): void {
    if (this.live.dataset["state"] !== "live") {
      this.live.dataset["state"] = "live";
      this.live.textContent = "live";
    }
    if (this.problem === null) return;
    this.banner.clear(this.problem);
    this.problem = null;
    this.announce("The server is back.");
  }

  private show(content: BannerContent): void {
    this.problem = content;
    this.banner.show(content);
  }

  private announce(text: string): void {
    this.status.textContent = text;
  }
}

new Dashboard().start();
