#include "cli/policy_flag.h"

#include <string>
#include <vector>

#include "sched/policy.h"

namespace kvist::cli {

CLI::Validator KnownPolicy() {
  std::vector<std::string> names;
  for (const sched::PolicyEntry& policy : sched::Policies()) names.emplace_back(policy.name);
  return CLI::IsMember(names);
}

}  // namespace kvist::cli
