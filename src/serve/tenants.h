#pragma once

/// @file
/// The tenants of a server: who a key belongs to, and what that tenant may still take. The list can be read again while
/// the server runs; what tenants have taken stays. Threads: any. Non-goals: what is in the file (tenant_config.h), the
/// counting itself (tenant_limits.h).
///
/// Keys of --api-key and KVIST_API_KEY belong to one tenant, "default", without bounds. A server without any key is
/// open: its requests belong to nobody, and nobody is bounded.

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "serve/tenant_config.h"
#include "serve/tenant_limits.h"

namespace kvist::serve {

inline constexpr std::string_view kDefaultTenant = "default";

/// What blocks on drives say whose they are by. Never 0.
uint32_t TenantKey(std::string_view name);

/// A tenant as it is for the requests that came while the list was this. Immutable but for its limits.
struct Tenant {
  TenantId id;  ///< The same for a name as long as the process runs.
  TenantConfig config;
  std::shared_ptr<TenantLimits> limits;

  /// Texts are shared within this name only: "group:NAME" or "tenant:NAME".
  std::string cache_space() const;
};
using TenantPtr = std::shared_ptr<const Tenant>;

class Tenants {
 public:
  struct Options {
    std::vector<std::string> api_keys;  ///< Of the default tenant, which administers; empty ones are left out.
    std::string file;                   ///< "" = none.
  };

  /// Errors: those of the file.
  static absl::StatusOr<std::unique_ptr<Tenants>> Create(Options options, const Clock& clock);

  /// Reads the file again. Errors: those of the file; then the list stays as it was.
  absl::Status Reload();
  bool has_file() const { return !options_.file.empty(); }

  /// No key is needed.
  bool open() const;
  /// @param authorization  value of that header, "Bearer KEY". nullptr for a key that nobody has. All keys are compared
  ///                       in constant time.
  TenantPtr Find(std::string_view authorization) const;
  /// nullptr when there is none (any more).
  TenantPtr Find(TenantId id) const;
  /// nullptr likewise.
  TenantPtr Named(std::string_view name) const;
  /// Also of one that has left the list; "" = nobody.
  std::string NameOf(TenantId id) const;
  /// By TenantKey, as blocks on drives have it: "" for 0, "#123" for a tenant that this process has never known.
  std::string NameOfKey(uint32_t key) const;
  std::vector<TenantPtr> All() const;
  /// nullopt when there is no such tenant, or it has none.
  std::optional<Prices> PricesOf(const std::string& name) const;

 private:
  Tenants(Options options, const Clock& clock) : options_(std::move(options)), clock_(clock) {}
  void Replace(std::vector<TenantConfig> configs);

  struct Known {
    TenantId id;
    std::shared_ptr<TenantLimits> limits;
  };

  const Options options_;
  const Clock& clock_;
  mutable std::mutex mutex_;  ///< Guards the rest.
  std::vector<TenantPtr> list_;
  absl::flat_hash_map<std::string, Known> known_;  ///< Every name there ever was.
  std::vector<std::string> names_;                 ///< [id - 1]
  absl::flat_hash_map<uint32_t, TenantId> keys_;   ///< [TenantKey]
};

/// A request's place among those of its tenant: given back when this goes.
class TenantTicket {
 public:
  TenantTicket(TenantPtr tenant, Entry entry) : tenant_(std::move(tenant)), entry_(entry) {}
  ~TenantTicket() { tenant_->limits->Leave(); }
  TenantTicket(const TenantTicket&) = delete;
  TenantTicket& operator=(const TenantTicket&) = delete;

  const Entry& entry() const { return entry_; }

 private:
  TenantPtr tenant_;
  Entry entry_;
};

/// A new key that cannot be guessed: "kv-" and 43 characters of base64url (256 bits).
std::string NewKey();
/// How a tenants file has it without giving it away: "sha256:" and 64 hexadecimal digits.
std::string HashedKey(std::string_view key);

}  // namespace kvist::serve
