/// @file
/// The `kvist` program: picks the subcommand.

#include <cstdio>
#include <new>
#include <string>

#include "cli/commands.h"
#include "cli/settings.h"
#include "cli/usage.h"

int main(int argc, char** argv) {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
    std::fputs("kvist: this processor lacks AVX2 and FMA, which kvist needs\n", stderr);
    return 1;
  }
  CLI::App app{"kvist: an LLM inference server that manages KV memory the way a database manages pages"};
  app.set_version_flag("--version", "kvist " KVIST_VERSION);
  app.require_subcommand(1);
  int exit_code = 0;
  kvist::cli::AddServe(app, exit_code);
  kvist::cli::AddInspect(app, exit_code);
  kvist::cli::AddTokenize(app, exit_code);
  kvist::cli::AddBench(app, exit_code);
  kvist::cli::AddCalibrate(app, exit_code);
  kvist::cli::AddBatch(app, exit_code);
  kvist::cli::AddBenchServe(app, exit_code);
  kvist::cli::AddRun(app, exit_code);
  kvist::cli::AddPull(app, exit_code);
  kvist::cli::AddEval(app, exit_code);
  kvist::cli::AddPerplexity(app, exit_code);
  kvist::cli::AddSynth(app, exit_code);
  kvist::cli::AddReplay(app, exit_code);
  kvist::cli::AddFrames(app, exit_code);
  kvist::cli::AddSchedule(app, exit_code);
  kvist::cli::AddTrainLength(app, exit_code);
  kvist::cli::AddExplain(app, exit_code);
  kvist::cli::AddClaims(app, exit_code);
  kvist::cli::AddSim(app, exit_code);
  kvist::cli::AddStore(app, exit_code);
  kvist::cli::AddConfig(app, exit_code);
  kvist::cli::AddTenantKey(app, exit_code);
  kvist::cli::AddCost(app, exit_code);
  kvist::cli::AddSettings(app);
  if (const std::string fault = kvist::cli::CommandFault(app, argc, argv); !fault.empty()) {
    std::fputs(fault.c_str(), stderr);
    return 2;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    std::fputs(kvist::cli::FlagHints(app).c_str(), stderr);
    return code == 0 ? 0 : 2;
  } catch (const std::bad_alloc&) {
    std::fputs("kvist: there is not so much memory; sizes and counts like --context and --parallel ask for it\n",
               stderr);
    return 1;
  }
  return exit_code;
}
