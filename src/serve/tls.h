#pragma once

/// @file
/// TLS for connections that come in (a certificate with its key) and for those that go out (whom to believe), and
/// channels that use it. TLS 1.2 and later, HTTP/1.1 only (ALPN). Threads: loading any, channels the network thread.
/// Non-goals: certificates of clients, choosing among several certificates, fetching any.

#include <cstdint>
#include <memory>
#include <string>

#include <boost/asio/ip/tcp.hpp>

#include "absl/status/statusor.h"
#include "serve/byte_channel.h"

namespace kvist::serve {

/// Files in PEM.
struct TlsFiles {
  std::string certificate;  ///< The server's, then those that it rests on; "" = no TLS.
  std::string key;          ///< Of the certificate, without a password.
};

/// A certificate that was read. Connections that use it outlive it.
class TlsIdentity {
 public:
  /// Errors: InvalidArgument names the file that is missing or no good, or says that the key is another certificate's.
  static absl::StatusOr<std::shared_ptr<const TlsIdentity>> Load(const TlsFiles& files);
  ~TlsIdentity();

  /// A channel that begins with a handshake.
  std::unique_ptr<ByteChannel> NewChannel(boost::asio::ip::tcp::socket socket) const;

  /// When the certificate begins and ends to be valid, seconds since 1970.
  int64_t begins_unix_s() const { return begins_unix_s_; }
  int64_t ends_unix_s() const { return ends_unix_s_; }

 private:
  struct Context;
  explicit TlsIdentity(std::unique_ptr<Context> context);

  const std::unique_ptr<Context> context_;
  int64_t begins_unix_s_ = 0, ends_unix_s_ = 0;
};

/// "2027-03-01T12:00:00Z".
std::string UtcText(int64_t unix_s);

/// That clients will refuse the certificate now, or that it ends within 14 days; "" = neither.
std::string DatesWarning(const TlsIdentity& identity, int64_t unix_now_s);

/// Whose certificates a client believes.
class TlsTrust {
 public:
  /// @param ca_file  certificates in PEM, those that servers' rest on or servers' own; "" = the system's
  /// Errors: InvalidArgument naming the file.
  static absl::StatusOr<std::shared_ptr<const TlsTrust>> Load(const std::string& ca_file);
  ~TlsTrust();

  /// A channel that begins with a handshake, which fails where the server cannot show that it is `host`.
  std::unique_ptr<ByteChannel> NewChannel(boost::asio::ip::tcp::socket socket, const std::string& host) const;

 private:
  struct Context;
  explicit TlsTrust(std::unique_ptr<Context> context);

  const std::unique_ptr<Context> context_;
};

/// The handshake failed because the server's certificate is not believed.
bool IsDistrust(const ByteChannel::Error& error);

/// The handshake failed because the client spoke plain HTTP.
bool IsPlainHttp(const ByteChannel::Error& error);

}  // namespace kvist::serve
