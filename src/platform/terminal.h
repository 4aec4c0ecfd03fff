#pragma once

/// @file
/// Whether somebody watches: progress is drawn and questions are asked only on a terminal. Any thread.

namespace kvist {

bool StdinIsTerminal();
bool StdoutIsTerminal();
bool StderrIsTerminal();

/// Width of the terminal on standard error; 80 when it does not tell.
unsigned StderrColumns();

}  // namespace kvist
