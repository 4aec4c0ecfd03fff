#pragma once

/// @file
/// One Add function per subcommand, each in the file of its name. A subcommand registers its flags on `app` and, when
/// it was chosen, runs inside CLI11's callback and writes the process's exit code: 0 done, 1 failed, 2 wrong usage.
/// Results go to standard output (`--json`: one object per line), everything else to standard error.

#include <CLI/CLI.hpp>

namespace kvist::cli {

void AddBatch(CLI::App& app, int& exit_code);
void AddBench(CLI::App& app, int& exit_code);
void AddBenchServe(CLI::App& app, int& exit_code);
void AddClaims(CLI::App& app, int& exit_code);
void AddCalibrate(CLI::App& app, int& exit_code);
void AddConfig(CLI::App& app, int& exit_code);
void AddCost(CLI::App& app, int& exit_code);
void AddEval(CLI::App& app, int& exit_code);
void AddExplain(CLI::App& app, int& exit_code);
void AddFrames(CLI::App& app, int& exit_code);
void AddInspect(CLI::App& app, int& exit_code);
void AddPerplexity(CLI::App& app, int& exit_code);
void AddPull(CLI::App& app, int& exit_code);
void AddReplay(CLI::App& app, int& exit_code);
void AddRun(CLI::App& app, int& exit_code);
void AddSchedule(CLI::App& app, int& exit_code);
void AddServe(CLI::App& app, int& exit_code);
void AddSim(CLI::App& app, int& exit_code);
void AddStore(CLI::App& app, int& exit_code);
void AddSynth(CLI::App& app, int& exit_code);
void AddTenantKey(CLI::App& app, int& exit_code);
void AddTokenize(CLI::App& app, int& exit_code);
void AddTrainLength(CLI::App& app, int& exit_code);

}  // namespace kvist::cli
