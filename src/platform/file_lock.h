#pragma once

/// @file
/// A lock on an open file that others who ask for it respect; it goes with the descriptor. Any thread.

namespace kvist {

/// Takes it for this descriptor alone, at once or not at all. @return false while another descriptor has it. File
/// systems without locks give it to everybody.
bool TryLockFile(int fd);

}  // namespace kvist
