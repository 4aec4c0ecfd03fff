#include "platform/process.h"

#include <time.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

namespace kvist {

double SecondsSinceProcessStart() {
  std::ifstream file("/proc/self/stat");
  std::string line;
  std::getline(file, line);
  // The second field is the name in brackets, which may hold anything; the start is the 22nd, in ticks since boot.
  const size_t end = line.rfind(')');
  if (end == std::string::npos) return 0;
  std::istringstream fields(line.substr(end + 1));
  std::string field;
  for (int i = 3; i < 22; ++i) fields >> field;
  double ticks = 0;
  timespec now{};
  if (!(fields >> ticks) || ::clock_gettime(CLOCK_BOOTTIME, &now) != 0) return 0;
  const double now_s = static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
  return now_s - ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

ResidentBytes ResidentMemory() {
  std::ifstream file("/proc/self/status");
  ResidentBytes resident;
  std::string key, rest;
  while (file >> key) {
    uint64_t* const target = key == "RssAnon:" ? &resident.anonymous : key == "RssFile:" ? &resident.file : nullptr;
    uint64_t kib = 0;
    if (target != nullptr && file >> kib) *target = kib * 1024;
    std::getline(file, rest);
  }
  return resident;
}

}  // namespace kvist
