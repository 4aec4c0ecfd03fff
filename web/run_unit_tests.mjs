// Runs *.test.ts in src/ and src/dashboard/ with Node's own test runner. Node 18 reads no TypeScript, so Vite
// bundles the tests first.
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { build } from "vite";

const out = mkdtempSync(join(tmpdir(), "kvist-web-test-"));
try {
  const folders = ["src", join("src", "dashboard")];
  const tests = folders
    .flatMap((folder) => readdirSync(folder).map((name) => join(folder, name)))
    .filter((name) => name.endsWith(".test.ts"));
  await build({
    configFile: false,
    logLevel: "warn",
    build: {
      ssr: true,
      outDir: out,
      target: "node18",
      rollupOptions: {
        input: tests,
        output: { entryFileNames: "[name].mjs", chunkFileNames: "chunks/[name].mjs" },
      },
    },
  });
  const files = readdirSync(out)
    .filter((name) => name.endsWith(".test.mjs"))
    .map((name) => join(out, name));
  process.exitCode = spawnSync(process.execPath, ["--test", ...files], { stdio: "inherit" }).status ?? 1;
} finally {
  rmSync(out, { recursive: true, force: true });
}
