// How the page looks and reads: accessibility rules (contrast, names, roles) in both colour schemes, no sideways
// scrolling on a phone, and pictures for people to judge.
//   KVIST_WEB_DIST     folder of the built page (default web/dist)
//   KVIST_SCREENSHOTS  folder for pictures; none are taken without it

import { after, before, beforeEach, test } from "node:test";
import { fileURLToPath } from "node:url";
import { Chat, launch, withPage } from "./browser.mjs";
import { FakeServer } from "./fake_server.mjs";
import { inspect } from "./inspect.mjs";

const kDist = process.env.KVIST_WEB_DIST ?? fileURLToPath(new URL("../../web/dist", import.meta.url));
const kAnswer = `A *page* holds the keys and values of **16 tokens** for one layer.

## Where it may lie

1. Hot memory, in a pool of frames
2. Cold memory
3. Disk, in append-only segments, with \`O_DIRECT\`

| tier | latency | bandwidth |
|---|--:|--:|
| hot | 90 ns | 40 GB/s |
| disk | 80 µs | 3 GB/s |

\`\`\`cpp
absl::StatusOr<PageId> Pool::Take(SizeClass size_class) {
  // One lock per bucket, so that threads rarely meet.
  return buckets_[Hash(size_class) & mask_].Take();
}
\`\`\`

> Demotion and forgetting are two questions. See [the design](https://example.org/design).`;

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
  server.models = ["smollm2-135m-instruct-q8_0"];
});

const kScreens = [
  ["light", { colorScheme: "light" }],
  ["dark", { colorScheme: "dark" }],
  [
    "phone",
    {
      colorScheme: "light",
      viewport: { width: 375, height: 740 },
      deviceScaleFactor: 2,
      isMobile: true,
      hasTouch: true,
    },
  ],
  [
    "phone-dark",
    {
      colorScheme: "dark",
      viewport: { width: 320, height: 640 },
      deviceScaleFactor: 2,
      isMobile: true,
      hasTouch: true,
    },
  ],
];
for (const [name, options] of kScreens) {
  test(`looks: ${name}`, { timeout: 240_000 }, () =>
    withPage(browser, server.url, { ...options, reducedMotion: "reduce", expected: /Failed to load/ }, async (page) => {
      const chat = new Chat(page);
      await page.getByLabel("Model").getByText("smollm2").waitFor({ state: "attached" });
      await inspect(page, `${name}-1-welcome`);

      const say = async (text) => {
        await chat.prompt.fill(text);
        await chat.send.click();
      };
      await say("What is a page in kvist, and where may it lie?");
      let stream = await server.nextStream();
      await page.getByText("Reading the prompt").waitFor();
      await inspect(page, `${name}-2-waiting`);
      for (const piece of kAnswer.match(/.{1,20}/gs)) {
        stream.text(piece);
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
      stream.end("stop", {
        prompt_tokens: 1480,
        completion_tokens: 187,
        prompt_tokens_details: { cached_tokens: 1472 },
      });
      await chat.finished();
      await inspect(page, `${name}-3-answer`);

      await say("And who decides?\nIn one sentence, please.");
      stream = await server.nextStream();
      stream.text(
        "<think>They ask for policy",
        ", not for the pool.</think>\n\n",
        "The engine",
        " decides; a ",
        "policy only ranks",
      );
      await page.getByText("policy only ranks").waitFor();
      await inspect(page, `${name}-4-streaming`);
      stream.end();
      await chat.finished();

      server.refuse(
        429,
        { message: "All slots are taken.", type: "rate_limit_error", param: null, code: null },
        { "Retry-After": "3" },
      );
      await say("Thanks!");
      await chat.banner.waitFor();
      await inspect(page, `${name}-5-error`);

      await page.getByRole("button", { name: "Edit" }).click();
      await inspect(page, `${name}-6-edit`);
      await page.getByRole("button", { name: "Cancel" }).click();

      await chat.openSettings();
      await chat.settings.getByLabel("Temperature").fill("7");
      await inspect(page, `${name}-7-settings`);
      await chat.settings.getByRole("button", { name: "Done" }).click();

      server.key = "k";
      await page.reload();
      await chat.banner.getByLabel("API key").waitFor();
      await inspect(page, `${name}-8-key`);
    }),
  );
}
