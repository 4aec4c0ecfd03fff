#include "serve/tls.h"

#include <ctime>
#include <string_view>
#include <utility>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/status.h"

namespace kvist::serve {

namespace asio = boost::asio;
namespace ssl = boost::asio::ssl;

namespace {

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);

class TlsChannel final : public ByteChannel {
 public:
  TlsChannel(asio::ip::tcp::socket socket, ssl::context& context, ssl::stream_base::handshake_type side)
      : stream_(std::move(socket), context), side_(side) {}

  /// The other side must be this host. Before Open.
  void Expect(const std::string& host) {
    boost::system::error_code ignored;
    asio::ip::make_address(host, ignored);
    if (ignored) SSL_set_tlsext_host_name(stream_.native_handle(), host.c_str());  // Addresses are not named so.
    stream_.set_verify_mode(ssl::verify_peer, ignored);
    stream_.set_verify_callback(ssl::host_name_verification(host), ignored);
  }

  asio::ip::tcp::socket& socket() override { return stream_.next_layer(); }
  asio::awaitable<Error> Open() override {
    auto [error] = co_await stream_.async_handshake(side_, kAwait);
    opened_ = !error;
    co_return error;
  }
  asio::awaitable<void> SayGoodbye() override {
    if (opened_) co_await stream_.async_shutdown(kAwait);  // Clients that just leave make it fail, and nobody cares.
  }
  void Read(asio::mutable_buffer buffer, Done done) override { stream_.async_read_some(buffer, std::move(done)); }
  void Write(asio::const_buffer buffer, Done done) override { stream_.async_write_some(buffer, std::move(done)); }

 private:
  ssl::stream<asio::ip::tcp::socket> stream_;
  const ssl::stream_base::handshake_type side_;
  bool opened_ = false;
};

/// ALPN: of what the client offers, HTTP/1.1; a client that offers other protocols only is refused (RFC 7301).
int ChooseProtocol(SSL* /*ssl*/, const unsigned char** out, unsigned char* out_size, const unsigned char* offered,
                   unsigned offered_size, void* /*context*/) {
  static constexpr unsigned char kHttp11[] = {8, 'h', 't', 't', 'p', '/', '1', '.', '1'};
  unsigned char* chosen = nullptr;
  if (SSL_select_next_proto(&chosen, out_size, kHttp11, sizeof kHttp11, offered, offered_size) !=
      OPENSSL_NPN_NEGOTIATED) {
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  }
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

absl::Status Fault(const std::string& file, std::string_view what, const boost::system::error_code& error) {
  return absl::InvalidArgumentError(Cat(file, ": ", what, " (", error.message(), ")"));
}

int64_t UnixSecondsOf(const ASN1_TIME* time) {
  std::tm parts{};
  return time != nullptr && ASN1_TIME_to_tm(time, &parts) == 1 ? timegm(&parts) : 0;
}

}  // namespace

struct TlsIdentity::Context {
  ssl::context value{ssl::context::tls_server};
};

TlsIdentity::TlsIdentity(std::unique_ptr<Context> context) : context_(std::move(context)) {
  if (const X509* certificate = SSL_CTX_get0_certificate(context_->value.native_handle()); certificate != nullptr) {
    begins_unix_s_ = UnixSecondsOf(X509_get0_notBefore(certificate));
    ends_unix_s_ = UnixSecondsOf(X509_get0_notAfter(certificate));
  }
}
TlsIdentity::~TlsIdentity() = default;

absl::StatusOr<std::shared_ptr<const TlsIdentity>> TlsIdentity::Load(const TlsFiles& files) {
  auto owned = std::make_unique<Context>();
  ssl::context& context = owned->value;
  SSL_CTX* raw = context.native_handle();
  SSL_CTX_set_min_proto_version(raw, TLS1_2_VERSION);
  SSL_CTX_set_options(raw, SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_mode(raw, SSL_MODE_RELEASE_BUFFERS);  // Most connections are idle most of the time.
  SSL_CTX_set_alpn_select_cb(raw, ChooseProtocol, nullptr);
  boost::system::error_code error;
  // A key with a password must fail, not ask the terminal.
  context.set_password_callback([](size_t, ssl::context::password_purpose) { return std::string(); }, error);
  context.use_certificate_chain_file(files.certificate, error);
  if (error) return Fault(files.certificate, "no certificate in PEM can be read from it", error);
  context.use_private_key_file(files.key, ssl::context::pem, error);
  if (error)
    return Fault(files.key, "no key of this certificate, in PEM and without a password, can be read from it", error);
  return std::shared_ptr<const TlsIdentity>(new TlsIdentity(std::move(owned)));
}

std::unique_ptr<ByteChannel> TlsIdentity::NewChannel(asio::ip::tcp::socket socket) const {
  return std::make_unique<TlsChannel>(std::move(socket), context_->value, ssl::stream_base::server);
}

struct TlsTrust::Context {
  ssl::context value{ssl::context::tls_client};
};

TlsTrust::TlsTrust(std::unique_ptr<Context> context) : context_(std::move(context)) {}
TlsTrust::~TlsTrust() = default;

absl::StatusOr<std::shared_ptr<const TlsTrust>> TlsTrust::Load(const std::string& ca_file) {
  auto owned = std::make_unique<Context>();
  SSL_CTX_set_min_proto_version(owned->value.native_handle(), TLS1_2_VERSION);
  boost::system::error_code error;
  if (ca_file.empty()) {
    owned->value.set_default_verify_paths(error);
    if (error) return absl::UnavailableError(Cat("the system's certificates cannot be found: ", error.message()));
  } else {
    owned->value.load_verify_file(ca_file, error);
    if (error) return Fault(ca_file, "no certificate in PEM can be read from it", error);
  }
  return std::shared_ptr<const TlsTrust>(new TlsTrust(std::move(owned)));
}

std::unique_ptr<ByteChannel> TlsTrust::NewChannel(asio::ip::tcp::socket socket, const std::string& host) const {
  auto channel = std::make_unique<TlsChannel>(std::move(socket), context_->value, ssl::stream_base::client);
  channel->Expect(host);
  return channel;
}

bool IsDistrust(const ByteChannel::Error& error) {
  return error.category() == asio::error::get_ssl_category() &&
         ERR_GET_REASON(static_cast<unsigned long>(error.value())) == SSL_R_CERTIFICATE_VERIFY_FAILED;
}

std::string UtcText(int64_t unix_s) {
  const std::time_t time = unix_s;
  std::tm parts{};
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&time, &parts))};
}

std::string DatesWarning(const TlsIdentity& identity, int64_t unix_now_s) {
  constexpr int64_t kDay = 86400, kWarnDays = 14;
  const int64_t left_s = identity.ends_unix_s() - unix_now_s;
  const std::string end = UtcText(identity.ends_unix_s());
  if (left_s < 0) return Cat("it ended on ", end, "; clients will refuse it");
  if (identity.begins_unix_s() > unix_now_s) {
    return Cat("it is valid from ", UtcText(identity.begins_unix_s()), " on, not yet; clients will refuse it");
  }
  if (left_s >= kWarnDays * kDay) return "";
  const int64_t days = left_s / kDay;
  return Cat("it ends on ", end, ", in ", days == 0 ? "less than a day" : days == 1 ? "a day" : Cat(days, " days"));
}

bool IsPlainHttp(const ByteChannel::Error& error) {
  return error.category() == asio::error::get_ssl_category() &&
         ERR_GET_REASON(static_cast<unsigned long>(error.value())) == SSL_R_HTTP_REQUEST;
}

}  // namespace kvist::serve
