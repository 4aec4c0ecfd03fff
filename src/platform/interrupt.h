#pragma once

/// @file
/// SIGINT and SIGTERM as a flag that long work looks at, so that Ctrl-C ends it cleanly. Process-wide. Non-goals:
/// servers, whose event loop takes signals itself.

namespace kvist {

/// From now on the first SIGINT or SIGTERM sets the flag; a second one while it is set ends the process at once.
/// Blocking reads return early (EINTR).
void CatchInterrupts();

/// Any thread.
bool Interrupted();

/// The interrupt was dealt with; the next one counts as the first.
void ClearInterrupt();

}  // namespace kvist
