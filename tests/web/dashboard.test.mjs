// The dashboard: what it shows of a server whose every figure the test knows, by mouse, by keyboard, on a phone, and how
// it looks. KVIST_WEB_DIST as in page.test.mjs, KVIST_SCREENSHOTS as in inspect.mjs.

import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import { fileURLToPath } from "node:url";
import { eventually, launch, withPage } from "./browser.mjs";
import { busyLoad, FakeLoad } from "./fake_load.mjs";
import { FakeServer } from "./fake_server.mjs";
import { inspect } from "./inspect.mjs";

const kDist = process.env.KVIST_WEB_DIST ?? fileURLToPath(new URL("../../web/dist", import.meta.url));
const kPhone = { viewport: { width: 320, height: 640 }, deviceScaleFactor: 2, isMobile: true, hasTouch: true };
const kFailedLoad = /Failed to load resource/;

const server = new FakeServer(kDist);
let browser;

before(async () => {
  await server.start();
  browser = await launch();
});
after(async () => {
  await browser?.close();
  await server.stop();
});
beforeEach(() => {
  server.reset();
  server.load = new FakeLoad();
});

/** What the tests look for on the page, by role and name. */
class View {
  constructor(page) {
    this.page = page;
    this.rows = page.locator("#timeline button");
    this.tree = page.getByRole("tree", { name: "Cached texts" });
    this.items = page.getByRole("treeitem");
    this.dialog = page.getByRole("dialog");
    this.banner = page.locator("#banner .banner");
    this.live = page.locator("#live");
  }
  tile(name) {
    return this.page.locator(".tile", { has: this.page.locator(`dt:text-is("${name}")`) }).locator(".value");
  }
  /** Waits for a round of requests that begins from now on. */
  async round() {
    const states = () => server.asked.filter((path) => path === "/kvist/state").length;
    const seen = states();
    await eventually(() => states() > seen + 1, true);
  }
  /** Owner -> blocks, as the table says. */
  async owners() {
    const rows = await this.page.locator(".tier tbody tr").all();
    const cells = await Promise.all(rows.map((row) => row.locator("th, td").allInnerTexts()));
    return Object.fromEntries(cells.map(([owner, blocks]) => [owner.trim(), Number(blocks.replace(",", ""))]));
  }
  /** Text of the tree's current item. */
  async current() {
    const id = await this.tree.getAttribute("aria-activedescendant");
    return this.page.locator(`#${id}`).innerText();
  }
}

function dashboardTest(name, options, body) {
  test(name, { timeout: 120_000 }, () =>
    withPage(browser, server.url, { path: "dashboard", ...options }, async (page, context) => {
      const view = new View(page);
      if (!options.untouched) await view.live.and(page.getByText("live")).waitFor();
      await body(view, page, context);
    }),
  );
}

dashboardTest("figures are the server's, and follow it", {}, async (view, page) => {
  assert.equal(await view.tile("Running").innerText(), "0");
  await page.getByText("No request has run in this time.").waitFor();
  server.load.arrive({ prompt: 512, cached: 256, output: 500 });
  for (let i = 0; i < 8; i++) server.load.arrive({ prompt: 512, output: 500 });
  server.load.advance(2000);
  await eventually(() => view.tile("Running").innerText(), "6");
  assert.equal(await view.tile("Waiting").innerText(), "3");
  // 6 prompts of 512 tokens in two seconds, 256 of them found.
  await eventually(() => view.tile("Tokens in").innerText(), "1,536 /s");
  assert.equal(await view.tile("Cache hits").innerText(), "8.3 %");
  assert.equal(await view.tile("Step").innerText(), "23.0 ms");
  assert.equal(await view.tile("Step error").count(), 1);
  assert.equal(await view.tile("Step error").isVisible(), false, "the server says nothing of it");
  assert.match(await page.locator("#percentiles").innerText(), /First token\s+–\s+–\s+–\s+0/);
  server.load.advance(60_000);
  await eventually(() => view.tile("Running").innerText(), "0");
  assert.match(await page.locator("#percentiles").innerText(), /First token\s+184 ms\s+612 ms\s+1.24 s\s+9/);
});

dashboardTest("a request's row tells its steps, and opens what the server explains", {}, async (view, page) => {
  server.load.arrive({ prompt: 600, output: 5 });
  server.load.runningMax = 1;
  server.load.arrive({ prompt: 100, output: 2 });
  server.load.advance(100);
  server.load.preempt();
  server.load.runningMax = 0;
  server.load.advance(100);
  server.load.runningMax = 1;
  server.load.advance(1000);
  await eventually(() => view.rows.count(), 2);
  // The list of who runs is newer or older than the steps by a moment.
  await eventually(async () => (await view.rows.last().getAttribute("aria-label")).includes(", ended"), true);
  const words = await view.rows.last().getAttribute("aria-label");
  assert.match(
    words,
    /^chatcmpl-\w+, ended, preempted for 50.0 ms, [\d,]+ prefill tokens in \d+ steps, 3 decode tokens in 3 steps$/,
  );
  assert.match(
    await view.rows.first().getAttribute("aria-label"),
    /ended, waiting for \d+ ms, 100 prefill tokens in 1 step/,
  );
  await view.rows.last().click();
  await view.dialog.getByText("chat, stop: 5 output tokens in 2.31 s").waitFor();
  const text = await view.dialog.innerText();
  for (const part of [
    /prefill\s+610 ms/,
    /512 tokens computed by chat …c0ffee, 12.3 s before/,
    /64 tokens in memory, read from the drive 40.0 s before/,
    /32 tokens read from cold memory/,
    /1 time for lack of memory/,
  ])
    assert.match(text, part);
  assert.doesNotMatch(text, /leader\s+0/, "what took no time is left out");
  await page.keyboard.press("Escape");
  await view.dialog.waitFor({ state: "hidden" });
  assert.equal(await view.rows.last().evaluate((row) => row === document.activeElement), true, "back where it was");
});

dashboardTest("a request that has not ended tells what was seen of it", { expected: kFailedLoad }, async (view) => {
  server.load.arrive({ prompt: 600, output: 5000 });
  server.load.advance(500);
  await eventually(async () => (await view.rows.first().getAttribute("aria-label")).includes("decode tokens"), true);
  await view.rows.first().click();
  await view.dialog.getByText("This request has not ended.").waitFor();
  assert.match(await view.dialog.innerText(), /running\s+600 prefill tokens in 3 steps/);
});

dashboardTest("the table of the memory map adds up, by request and by tenant", {}, async (view, page) => {
  server.load.grow(40);
  server.load.arrive({ prompt: 320, output: 400, tenant: "acme" });
  server.load.arrive({ prompt: 160, output: 400, tenant: "acme" });
  server.load.advance(1000);
  const sum = (owners) => Object.values(owners).reduce((total, blocks) => total + blocks, 0);
  await eventually(async () => (await view.owners())["cached, pinned"], 30);
  const byRequest = await view.owners();
  assert.equal(sum(byRequest), 2048);
  assert.equal(Object.keys(byRequest).filter((name) => name.startsWith("chat ")).length, 2);
  await page.getByLabel("Blocks by").selectOption("tenant");
  const byTenant = await view.owners();
  assert.equal(sum(byTenant), 2048);
  const requests = Object.entries(byRequest).filter(([name]) => name.startsWith("chat "));
  assert.equal(byTenant["acme"], sum(Object.fromEntries(requests)));
});

dashboardTest("the prefix tree goes by keyboard alone", { path: "dashboard" }, async (view, page) => {
  server.load.grow(60, 4);
  await view.tree.waitFor();
  await view.tree.focus();
  await eventually(() => view.items.count(), 5);
  const top = await view.current();
  assert.match(top, /tokens 0 to 16/);
  const root = view.items.first();
  await page.keyboard.press("ArrowLeft");
  await eventually(() => view.items.count(), 1);
  await page.keyboard.press("ArrowRight");
  await eventually(() => root.getAttribute("aria-expanded"), "true");
  await page.keyboard.press("ArrowRight");
  assert.equal(await view.items.nth(1).getAttribute("aria-selected"), "true", "right goes to the first child");
  assert.equal(await view.items.nth(1).getAttribute("aria-level"), "2");
  assert.equal(await view.items.nth(1).getAttribute("aria-setsize"), "4");
  await page.keyboard.press("ArrowLeft");
  await page.keyboard.press("ArrowLeft");
  assert.equal(await view.current(), await view.items.first().innerText(), "left goes to the parent");
  await page.keyboard.press("Enter");
  await page.keyboard.press("End");
  assert.notEqual(await view.current(), top);
  await page.keyboard.press("Home");
  const open = await view.items.first().getAttribute("aria-expanded");
  await view.round();
  assert.equal(await view.items.first().getAttribute("aria-expanded"), open, "news change nothing of what is open");
});

dashboardTest("ten thousand nodes are as quick as ten", {}, async (view, page) => {
  server.load.grow(10_000);
  await view.tree.waitFor();
  await page.getByRole("button", { name: "Expand all" }).click();
  await view.tree.focus();
  const took = await page.evaluate(async () => {
    const tree = document.getElementById("tree");
    const press = (key) => tree.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
    const began = performance.now();
    for (let i = 0; i < 100; i++) press("ArrowDown");
    press("End");
    return performance.now() - began;
  });
  assert.ok(took < 2000, `a hundred keys took ${took} ms`);
  assert.ok((await view.items.count()) < 60, "only what can be seen is in the document");
  assert.equal(await view.tree.evaluate((tree) => Math.round(tree.scrollHeight / 34)), 10_000);
  assert.ok(await view.tree.evaluate((tree) => tree.scrollTop > 300_000), "the end is in view");
});

dashboardTest(
  "tenants are shown where the server keeps what they use, with money where they have prices",
  {},
  async (view, page) => {
    const panel = page.getByRole("region", { name: "Tenants", exact: true });
    await view.round();
    assert.equal(await panel.isVisible(), false);
    assert.ok(!server.asked.some((path) => path.startsWith("/kvist/usage")), "nobody asks for what is not there");
    const used = { requests: 12, prompt_tokens: 4000, cached_tokens: 1000, generated_tokens: 600, step_seconds: 7.5 };
    server.load.usage = [{ tenant: "acme", ...used }];
    await panel.waitFor();
    assert.match(await panel.innerText(), /acme\s+12\s+4,000\s+25 %\s+600\s+7.50 s/);
    assert.doesNotMatch(await panel.innerText(), /Margin|Cold memory|Drive/);
    assert.match(
      server.asked.find((path) => path.startsWith("/kvist/usage")),
      /from=\d{4}-\d\d-\d\d$/,
    );
    server.load.usage.push({
      tenant: "initech",
      ...used,
      kv_byte_seconds: { hot: 1e9, cold_memory: 3600 * 1536, drive: 3600 * 2 ** 31 },
      currency: "USD",
      cost: 0.002,
      revenue: 0.0016,
      margin: -0.25,
    });
    await page.getByLabel("Usage of").selectOption("all time");
    await eventually(
      () => panel.innerText(),
      (text) => /initech.*1.5 KiB h\s+2.0 GiB h\s+0.00200 USD\s+0.00160 USD\s+−25 %/.test(text),
    );
    assert.doesNotMatch(
      server.asked.findLast((path) => path.startsWith("/kvist/usage")),
      /from=/,
    );
  },
);

dashboardTest("tiers below memory have their names and bytes", {}, async (view, page) => {
  const none = { pinned: 0, referenced: 0 };
  server.load.tiersBelow = [
    {
      name: "cold_memory",
      state: "writing",
      reason: "",
      bytes: 2 ** 20,
      bytes_max: 2 ** 30,
      blocks: { total: 2048, free: 2046, cached: 2, ...none },
    },
    {
      name: "drive",
      state: "full",
      reason: "10.0 MiB are free on the drive",
      bytes: 0,
      bytes_max: 20 * 2 ** 30,
      blocks: { total: null, free: null, cached: 0, ...none },
    },
  ];
  const titles = page.locator(".tier h3");
  await eventually(() => titles.count(), 3);
  assert.match(await titles.nth(0).innerText(), /^Hot memory: [\d,]+ blocks of 16 tokens$/);
  assert.equal(await titles.nth(1).innerText(), "Cold memory: 2 blocks of 16 tokens, 1.0 MiB of 1.0 GiB");
  assert.equal(
    await titles.nth(2).innerText(),
    "Drive: 0 blocks of 16 tokens, 0 B of 20.0 GiB; full: 10.0 MiB are free on the drive",
  );
  assert.equal(await page.locator(".tier table:visible").count(), 2, "there is nothing to tell of an empty drive");
});

dashboardTest("it does not ask while paused or hidden, and asks at once afterwards", {}, async (view, page) => {
  await page.getByRole("button", { name: "Pause" }).click();
  await page.getByText("paused", { exact: true }).waitFor();
  await page.waitForTimeout(300); // What was under way.
  let asked = server.asked.length;
  await page.waitForTimeout(2500);
  assert.equal(server.asked.length, asked);
  await page.getByRole("button", { name: "Resume" }).click();
  await eventually(() => server.asked.length > asked, true, 1000);

  const hide = (hidden) =>
    page.evaluate((value) => {
      Object.defineProperty(document, "hidden", { value, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }, hidden);
  await hide(true);
  await page.waitForTimeout(300);
  asked = server.asked.length;
  await page.waitForTimeout(2500);
  assert.equal(server.asked.length, asked);
  await hide(false);
  await eventually(() => server.asked.length > asked, true, 1000);

  await page.getByLabel("Update every").selectOption("10");
  await page.reload();
  assert.equal(await page.getByLabel("Update every").inputValue(), "10", "kept over a reload");
});

dashboardTest("each step is asked for once, and a restart begins anew", {}, async (view) => {
  server.load.arrive({ prompt: 600, output: 20 });
  server.load.advance(1000);
  await eventually(() => view.rows.count(), 1);
  const last = server.load.steps.at(-1).id;
  await view.round();
  assert.ok(server.asked.includes(`/kvist/steps?since=${last}`));
  server.load.restart();
  server.load.arrive({ prompt: 100, output: 30 });
  server.load.advance(300);
  await eventually(
    async () => (await view.rows.first().getAttribute("aria-label")).includes("100 prefill tokens"),
    true,
  );
  assert.equal(await view.rows.count(), 1, "the requests of the server before are gone");
});

dashboardTest("the server's key is asked for, and kept", { untouched: true, expected: /401/ }, async (view, page) => {
  server.key = "secret";
  await page.reload();
  await view.banner.getByText("This server asks for an API key.").waitFor();
  await view.banner.getByLabel("API key").fill("wrong");
  await page.keyboard.press("Enter");
  await view.banner.getByText("Incorrect API key provided.").waitFor();
  await view.banner.getByLabel("API key").fill("secret");
  await page.keyboard.press("Enter");
  await view.live.and(page.getByText("live")).waitFor();
  assert.equal(await view.banner.count(), 0);
  await page.reload();
  await view.live.and(page.getByText("live")).waitFor();
});

dashboardTest(
  "it says when the server is gone, and comes back by itself",
  { expected: kFailedLoad },
  async (view, page) => {
    const { port } = server;
    await server.stop();
    await view.banner.getByText("The server cannot be reached.").waitFor();
    assert.equal(await view.live.innerText(), "away");
    await server.start(port);
    await view.live.and(page.getByText("live")).waitFor();
    assert.equal(await view.banner.count(), 0);
    assert.equal(await page.getByRole("status").innerText(), "The server is back.");
    server.health = 503;
    await view.banner.getByText("The engine does not answer.").waitFor();
    server.health = 200;
    await view.live.and(page.getByText("live")).waitFor();
  },
);

dashboardTest(
  "an older server is told from one that is gone",
  { untouched: true, expected: kFailedLoad },
  async (view, page) => {
    server.load = null;
    await page.reload();
    await view.banner.getByText("This server has no dashboard data.").waitFor();
  },
);

dashboardTest("chat and dashboard lead to each other", {}, async (view, page) => {
  await page.getByRole("link", { name: "Chat" }).click();
  await page.getByRole("textbox", { name: "Message" }).waitFor();
  await page.getByRole("link", { name: "Dashboard" }).click();
  await view.live.and(page.getByText("live")).waitFor();
});

dashboardTest("everything can be reached by keyboard alone", {}, async (view, page) => {
  server.load = busyLoad(40);
  await eventually(
    () => view.rows.count(),
    (count) => count > 10,
  );
  await view.tree.waitFor();
  const reached = [];
  for (let i = 0; i < 20 && reached.at(-1) !== "tree"; i++) {
    await page.keyboard.press("Tab");
    reached.push(
      await page.evaluate(
        () =>
          document.activeElement?.id ||
          document.activeElement?.className ||
          document.activeElement?.closest("[id]")?.id,
      ),
    );
  }
  for (const stop of [
    "skip",
    "pause",
    "rate",
    "quiet",
    "window",
    "timeline",
    "owner",
    "expand-all",
    "collapse-all",
    "tree",
  ])
    assert.ok(reached.includes(stop), `Tab does not reach ${stop}: ${reached}`);
  assert.equal(reached.filter((stop) => stop === "timeline").length, 1, "the rows are one stop");
  await view.rows.first().focus();
  await page.keyboard.press("ArrowDown");
  assert.equal(await view.rows.nth(1).evaluate((row) => row === document.activeElement), true);
  await page.keyboard.press("End");
  await page.keyboard.press("Enter");
  await view.dialog.getByText("output tokens in").waitFor();
  await page.keyboard.press("Escape");
  await view.dialog.waitFor({ state: "hidden" });
});

// ---- How it looks

const kScreens = [
  ["light", { colorScheme: "light", viewport: { width: 1280, height: 900 } }],
  ["dark", { colorScheme: "dark", viewport: { width: 1280, height: 900 } }],
  ["phone", { colorScheme: "light", ...kPhone }],
  ["phone-dark", { colorScheme: "dark", ...kPhone }],
];
for (const [name, screen] of kScreens) {
  const options = { ...screen, reducedMotion: "reduce", expected: kFailedLoad };
  dashboardTest(`looks and reads well: ${name}`, options, async (view, page) => {
    const picture = async (what) => {
      await page.evaluate(() => scrollTo(0, 0));
      await inspect(page, `dashboard-${name}-${what}`, { fullPage: true });
    };
    await view.round();
    await picture("1-empty");
    server.load = busyLoad();
    server.load.usage = ["acme", "initech", "a-tenant-with-a-rather-long-name"].map((tenant, i) => ({
      tenant,
      requests: 1200 >> i,
      prompt_tokens: 1_840_000 >> i,
      cached_tokens: 920_000 >> (i + 1),
      generated_tokens: 210_000 >> i,
      step_seconds: 5210 / (i + 1),
      ...(i < 2
        ? { currency: "USD", cost: 0.43 / (i + 1), revenue: 0.61 / (i + 2), margin: i === 0 ? 0.29 : -0.06 }
        : {}),
    }));
    for (let i = 0; i < 5; i++) {
      await view.round();
      server.load.advance(1000);
      if (i % 2 === 0) server.load.arrive({ prompt: 700, output: 120 });
    }
    await eventually(
      () => view.rows.count(),
      (count) => count > 10,
    );
    await page.getByRole("button", { name: "Collapse all" }).click();
    await view.items.first().click();
    await view.round();
    await picture("2-busy");
    await view.rows.last().click();
    await view.dialog.getByText("output tokens in").waitFor();
    await inspect(page, `dashboard-${name}-3-explain`);
    await page.keyboard.press("Escape");
    server.load.nodes = [];
    server.load.grow(10_000);
    server.load.blocksTotal = 60_000;
    await page.getByText("10,000 pieces of text.").waitFor();
    await page.getByRole("button", { name: "Expand all" }).click();
    await view.round();
    await picture("4-large");
    server.health = 503;
    await view.banner.waitFor();
    await inspect(page, `dashboard-${name}-5-away`);
  });
}
