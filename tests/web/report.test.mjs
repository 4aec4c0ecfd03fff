// The report of `kvist bench-serve --html` as people see it: light, dark and on a phone.
//   KVIST_BINARY=build/kvist KVIST_MODEL=models/default-q8_0.gguf
//   KVIST_SCREENSHOTS  folder for pictures; none are taken without it

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { pathToFileURL } from "node:url";
import { launch, withPage } from "./browser.mjs";
import { inspect } from "./inspect.mjs";
import { RealServer } from "./real_server.mjs";

const { KVIST_BINARY, KVIST_MODEL } = process.env;
const skip = KVIST_BINARY ? false : "KVIST_BINARY is not set";
const folder = mkdtempSync(join(tmpdir(), "kvist-report-"));
const report = join(folder, "report.html");
const server = new RealServer();
let browser;

before(async () => {
  if (skip) return;
  await server.start(KVIST_BINARY, [...(KVIST_MODEL ? [KVIST_MODEL] : []), "--parallel", "2", "--queue", "1"], 120_000);
  // More than the queue takes: there are figures, plots, tenants and refusals to be shown.
  const tenants = ["--tenant", "a department with a long name=k:100", "--tenant", "two=k:50"];
  const texts = ["--input-tokens", "60", "--output-tokens", "40", "--ignore-eos", "--slo-ttft-ms", "200"];
  execFileSync(KVIST_BINARY, ["bench-serve", "--url", server.url, "--requests", "60", ...tenants, ...texts, "--html", report]);
  browser = await launch();
});
after(async () => {
  await browser?.close();
  await server.stop();
  rmSync(folder, { recursive: true });
});

const kScreens = {
  light: { colorScheme: "light" },
  dark: { colorScheme: "dark" },
  phone: { colorScheme: "light", viewport: { width: 375, height: 740 }, isMobile: true, hasTouch: true },
  "phone-dark": { colorScheme: "dark", viewport: { width: 320, height: 640 }, isMobile: true, hasTouch: true },
};
for (const [name, options] of Object.entries(kScreens)) {
  test(`report: ${name}`, { timeout: 120_000, skip }, () =>
    withPage(browser, pathToFileURL(report).href, options, async (page) => {
      await page.getByRole("heading", { name: "Not answered" }).waitFor();
      assert.equal(await page.getByRole("img").count(), 7);
      await inspect(page, `report-${name}`, { fullPage: true });
    }),
  );
}
