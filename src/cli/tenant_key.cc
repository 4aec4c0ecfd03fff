/// @file
/// `kvist tenant-key`: makes an API key and what a tenants file says of it.

#include <cstdio>
#include <memory>
#include <string>

#include <fmt/format.h>

#include <boost/json.hpp>

#include "cli/commands.h"
#include "serve/json_output.h"
#include "serve/tenants.h"

namespace kvist::cli {

void AddTenantKey(CLI::App& app, int& exit_code) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command =
      app.add_subcommand("tenant-key", "Make an API key for a tenant, and its hash for the tenants file");
  command->add_flag("--json", *json, "One JSON object: key, hash");
  command->callback([json, &exit_code] {
    const std::string key = serve::NewKey(), hash = serve::HashedKey(key);
    if (*json) {
      std::printf("%s\n", serve::JsonText(boost::json::object{{"key", key}, {"hash", hash}}).c_str());
    } else {
      fmt::print("key, for the tenant only:   {}\nhash, for the tenants file: {}\n", key, hash);
    }
    exit_code = 0;
  });
}

}  // namespace kvist::cli
