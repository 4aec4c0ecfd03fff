#include "sched/tenant_share.h"

#include "base/check.h"

namespace kvist::sched {

void TenantShare::Enter(TenantId tenant) {
  Account& account = accounts_[tenant];
  if (account.requests++ > 0) return;
  uint64_t least = UINT64_MAX;
  for (const auto& [other, its] : accounts_) {
    if (other != tenant && its.requests > 0) least = std::min(least, its.received);
  }
  account.received = std::max(account.received, least == UINT64_MAX ? left_at_ : least);
}

void TenantShare::Leave(TenantId tenant) {
  const auto it = accounts_.find(tenant);
  KVIST_CHECK(it != accounts_.end() && it->second.requests > 0);
  if (--it->second.requests == 0) left_at_ = it->second.received;
}

}  // namespace kvist::sched
