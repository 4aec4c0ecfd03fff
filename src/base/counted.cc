#include "base/counted.h"

#include "base/byte_size.h"
#include "base/status.h"

namespace kvist {

std::string Counted(uint64_t count, std::string_view noun) {
  return Cat(FormatCount(count), " ", noun, count == 1 ? "" : "s");
}

}  // namespace kvist
