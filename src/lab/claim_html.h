#pragma once

/// @file
/// Claims as one HTML page without anything from elsewhere: a table, and for each measured claim a bar beside its
/// bound. Legible on a phone, in dark and light, and by a screen reader. Pure; any thread.

#include <string>
#include <vector>

#include "lab/claim_record.h"

namespace kvist::lab {

std::string ClaimsHtml(const std::vector<ClaimFile>& files, const std::vector<ClaimRecord>& records);

}  // namespace kvist::lab
