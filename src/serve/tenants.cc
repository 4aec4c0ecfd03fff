#include "serve/tenants.h"

#include <algorithm>
#include <utility>

#include <openssl/rand.h>

#include "absl/strings/escaping.h"
#include "base/check.h"
#include "base/hash128.h"
#include "base/status.h"

namespace kvist::serve {

uint32_t TenantKey(std::string_view name) {
  const auto key = static_cast<uint32_t>(HashOf(std::as_bytes(std::span(name))).low);
  return std::max(key, 1u);
}

std::string Tenant::cache_space() const {
  return config.shared.empty() ? Cat("tenant:", config.name) : Cat("group:", config.shared);
}

absl::StatusOr<std::unique_ptr<Tenants>> Tenants::Create(Options options, const Clock& clock) {
  auto tenants = std::unique_ptr<Tenants>(new Tenants(std::move(options), clock));
  KVIST_RETURN_IF_ERROR(tenants->Reload());
  return tenants;
}

absl::Status Tenants::Reload() {
  std::vector<TenantConfig> configs;
  if (has_file()) {
    KVIST_ASSIGN_OR_RETURN(configs, ReadTenantsFile(options_.file));
  }
  TenantConfig fallback{.name = std::string(kDefaultTenant), .admin = true};
  for (const std::string& key : options_.api_keys) {
    if (!key.empty()) fallback.keys.push_back(DigestOf(key));
  }
  if (!fallback.keys.empty()) {
    for (const TenantConfig& tenant : configs) {
      if (tenant.name == kDefaultTenant) {
        return absl::InvalidArgumentError(
            Cat(options_.file, ": the tenant 'default' has the keys of --api-key and KVIST_API_KEY; use another name"));
      }
      for (const KeyDigest& key : tenant.keys) {
        if (std::ranges::find(fallback.keys, key) != fallback.keys.end()) {
          return absl::InvalidArgumentError(
              Cat(options_.file, ": a key of tenant '", tenant.name, "' is also one of --api-key or KVIST_API_KEY"));
        }
      }
    }
    configs.push_back(std::move(fallback));
  }
  Replace(std::move(configs));
  return absl::OkStatus();
}

void Tenants::Replace(std::vector<TenantConfig> configs) {
  std::lock_guard lock(mutex_);
  list_.clear();
  for (TenantConfig& config : configs) {
    auto [it, is_new] = known_.try_emplace(config.name);
    if (is_new) {
      names_.push_back(config.name);
      keys_[TenantKey(config.name)] = TenantId{static_cast<uint32_t>(names_.size())};
      it->second = {TenantId{static_cast<uint32_t>(names_.size())}, std::make_shared<TenantLimits>(clock_)};
    }
    list_.push_back(std::make_shared<const Tenant>(Tenant{it->second.id, std::move(config), it->second.limits}));
  }
}

bool Tenants::open() const {
  std::lock_guard lock(mutex_);
  return list_.empty();
}

TenantPtr Tenants::Find(std::string_view authorization) const {
  const std::optional<std::string_view> key = BearerKey(authorization);
  if (!key) return nullptr;
  const KeyDigest digest = DigestOf(*key);
  TenantPtr found;
  std::lock_guard lock(mutex_);
  for (const TenantPtr& tenant : list_) {  // All of them: which one matched must not show in the time.
    for (const KeyDigest& known : tenant->config.keys) {
      if (SameDigest(digest, known)) found = tenant;
    }
  }
  return found;
}

TenantPtr Tenants::Find(TenantId id) const {
  std::lock_guard lock(mutex_);
  const auto it = std::ranges::find(list_, id, [](const TenantPtr& tenant) { return tenant->id; });
  return it == list_.end() ? nullptr : *it;
}

std::string Tenants::NameOf(TenantId id) const {
  std::lock_guard lock(mutex_);
  return id.value == 0 || id.value > names_.size() ? "" : names_[id.value - 1];
}

std::string Tenants::NameOfKey(uint32_t key) const {
  if (key == 0) return "";
  std::lock_guard lock(mutex_);
  const auto it = keys_.find(key);
  return it == keys_.end() ? Cat("#", key) : names_[it->second.value - 1];
}

TenantPtr Tenants::Named(std::string_view name) const {
  std::lock_guard lock(mutex_);
  const auto it = std::ranges::find(list_, name, [](const TenantPtr& tenant) { return tenant->config.name; });
  return it == list_.end() ? nullptr : *it;
}

std::vector<TenantPtr> Tenants::All() const {
  std::lock_guard lock(mutex_);
  return list_;
}

std::optional<Prices> Tenants::PricesOf(const std::string& name) const {
  const TenantPtr tenant = Named(name);
  return tenant == nullptr ? std::nullopt : tenant->config.prices;
}

std::string NewKey() {
  unsigned char bytes[32];
  KVIST_CHECK(RAND_bytes(bytes, sizeof bytes) == 1);
  std::string text;
  absl::WebSafeBase64Escape({reinterpret_cast<const char*>(bytes), sizeof bytes}, &text);
  while (text.ends_with('=')) text.pop_back();
  return "kv-" + text;
}

std::string HashedKey(std::string_view key) {
  const KeyDigest digest = DigestOf(key);
  return Cat("sha256:", absl::BytesToHexString({reinterpret_cast<const char*>(digest.data()), digest.size()}));
}

}  // namespace kvist::serve
