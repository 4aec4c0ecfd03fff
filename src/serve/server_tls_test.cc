/// @file
/// The server behind TLS, with certificates made here: what clients get, what the others get, and a new certificate
/// while connections are open.

#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>

#include "base/status.h"
#include "serve/post_client.h"
#include "serve/server_testutil.h"
#include "serve/tls.h"

namespace kvist::serve {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

template <auto Free>
struct Freer {
  template <class T>
  void operator()(T* object) const {
    Free(object);
  }
};
template <class T, auto Free>
using Owned = std::unique_ptr<T, Freer<Free>>;

/// A folder with a certificate for "localhost" and its key.
class Certificates {
 public:
  Certificates() : folder_(std::filesystem::path(::testing::TempDir()) / Cat("kvist_tls_", getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~Certificates() { std::filesystem::remove_all(folder_); }

  std::string Path(std::string_view name) const { return folder_ / name; }
  /// @param serial  tells one certificate from another
  void Make(std::string_view name, long serial, long begins_s = -60, long ends_s = 90 * 86400) const {
    const Owned<EVP_PKEY, EVP_PKEY_free> key(EVP_EC_gen("P-256"));
    const Owned<X509, X509_free> certificate(X509_new());
    X509_set_version(certificate.get(), 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), serial);
    X509_gmtime_adj(X509_getm_notBefore(certificate.get()), begins_s);
    X509_gmtime_adj(X509_getm_notAfter(certificate.get()), ends_s);
    X509_set_pubkey(certificate.get(), key.get());
    X509_NAME* subject = X509_get_subject_name(certificate.get());
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("localhost"), -1, -1,
                               0);
    X509_set_issuer_name(certificate.get(), subject);
    X509_sign(certificate.get(), key.get(), EVP_sha256());
    const Owned<std::FILE, std::fclose> pem(std::fopen(Path(Cat(name, ".pem")).c_str(), "w"));
    PEM_write_X509(pem.get(), certificate.get());
    const Owned<std::FILE, std::fclose> key_pem(std::fopen(Path(Cat(name, ".key")).c_str(), "w"));
    PEM_write_PrivateKey(key_pem.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  }
  void Use(std::string_view name, ServerOptions& options) const {
    options.tls_certificate = Path(Cat(name, ".pem"));
    options.tls_key = Path(Cat(name, ".key"));
  }

 private:
  const std::filesystem::path folder_;
};

/// A blocking client that trusts anybody.
class TlsClient {
 public:
  /// @param protocols  of ALPN, each with its length before it; "" = none
  explicit TlsClient(uint16_t port, std::string_view protocols = "", int version_max = 0)
      : tcp_(port), context_(SSL_CTX_new(TLS_client_method())) {
    if (version_max != 0) SSL_CTX_set_max_proto_version(context_.get(), version_max);
    SSL_CTX_set_security_level(context_.get(), 0);  // Old versions are to be refused by the server, not here.
    ssl_.reset(SSL_new(context_.get()));
    SSL_set_alpn_protos(ssl_.get(), reinterpret_cast<const unsigned char*>(protocols.data()),
                        static_cast<unsigned>(protocols.size()));
    SSL_set_fd(ssl_.get(), tcp_.descriptor());
    connected_ = SSL_connect(ssl_.get()) == 1;
  }

  bool connected() const { return connected_; }
  std::string version() const { return SSL_get_version(ssl_.get()); }
  std::string protocol() const {
    const unsigned char* name = nullptr;
    unsigned size = 0;
    SSL_get0_alpn_selected(ssl_.get(), &name, &size);
    return {reinterpret_cast<const char*>(name), size};
  }
  long serial() const {
    const Owned<X509, X509_free> certificate(SSL_get1_peer_certificate(ssl_.get()));
    return ASN1_INTEGER_get(X509_get0_serialNumber(certificate.get()));
  }

  bool Send(std::string_view bytes) {
    return SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size())) == static_cast<int>(bytes.size());
  }
  bool SendPost(std::string_view path, std::string_view body, bool keep_alive = false) {
    return Send(Cat("POST ", path, " HTTP/1.1\r\nHost: localhost\r\nContent-Length: ", body.size(), "\r\n",
                    keep_alive ? "" : "Connection: close\r\n", "\r\n", body));
  }
  /// Until the server says that nothing more comes; `clean` = by TLS's own word for it.
  std::string ReadAll(bool* clean = nullptr) {
    std::string all;
    char piece[4096];
    int got = 0;
    while ((got = SSL_read(ssl_.get(), piece, sizeof piece)) > 0) all.append(piece, static_cast<size_t>(got));
    if (clean != nullptr) *clean = SSL_get_error(ssl_.get(), got) == SSL_ERROR_ZERO_RETURN;
    return all;
  }
  std::string ReadUntil(std::string_view text) {
    std::string all;
    char byte;
    while (all.find(text) == std::string::npos && SSL_read(ssl_.get(), &byte, 1) == 1) all += byte;
    return all;
  }
  void Close() { tcp_.Close(); }

 private:
  HttpClient tcp_;
  const Owned<SSL_CTX, SSL_CTX_free> context_;
  Owned<SSL, SSL_free> ssl_;
  bool connected_ = false;
};

class ServerTls : public ::testing::Test {
 protected:
  ServerTls() {
    certificates_.Make("one", 1);
    options_ = Options();
    certificates_.Use("one", options_.server);
  }

  const Certificates certificates_;
  FakeWorldOptions options_;
};

TEST_F(ServerTls, AnswersAndStreamsAsWithoutIt) {
  FakeWorld world(options_);
  EXPECT_THAT(world.server->server().url(), HasSubstr("https://127.0.0.1:"));
  TlsClient client(world.port(), "\x02h2\x08http/1.1");
  ASSERT_TRUE(client.connected());
  EXPECT_EQ(client.protocol(), "http/1.1");
  EXPECT_EQ(client.version(), "TLSv1.3");
  // Two on one connection, the second with an answer in pieces that ends with the connection.
  ASSERT_TRUE(client.SendPost(kChatPath, kHello, /*keep_alive=*/true));
  EXPECT_THAT(client.ReadUntil("\"kvist\""), HasSubstr("HTTP/1.1 200 OK"));
  ASSERT_TRUE(client.SendPost(kChatPath, kHelloStream));
  bool clean = false;
  EXPECT_THAT(client.ReadAll(&clean), HasSubstr("data: [DONE]"));
  EXPECT_TRUE(clean);
  EXPECT_TRUE(world.WaitForStats(IsIdle));
}

TEST_F(ServerTls, LargeBodiesAndManyConnections) {
  FakeWorld world(options_);
  const std::string body = R"({"prompt":[)" +
                           [] {
                             std::string ids = "5";
                             for (int i = 0; i < 3000; ++i) ids += ",5";
                             return ids;
                           }() +
                           R"(],"max_tokens":4,"user":")" + std::string(1 << 20, 'u') + "\"}";
  std::vector<std::thread> clients;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([&] {
      TlsClient client(world.port());
      ASSERT_TRUE(client.connected());
      ASSERT_TRUE(client.SendPost("/v1/completions", body));
      EXPECT_THAT(client.ReadAll(), HasSubstr("HTTP/1.1 200 OK"));
    });
  }
  for (std::thread& client : clients) client.join();
}

TEST_F(ServerTls, AClientThatLeavesFreesItsPlace) {
  FakeWorld world(options_);
  TlsClient client(world.port());
  ASSERT_TRUE(client.SendPost(kChatPath, kEndless));
  EXPECT_THAT(client.ReadUntil("data: "), HasSubstr("200 OK"));
  client.Close();
  EXPECT_TRUE(world.WaitForStats(IsIdle));
}

TEST_F(ServerTls, PlainHttpIsToldSo) {
  FakeWorld world(options_);
  HttpClient plain(world.port());
  plain.SendGet("/health");
  const HttpResponse response = plain.Read();
  EXPECT_EQ(response.status, 400);
  EXPECT_THAT(response.body, HasSubstr("HTTPS"));
  EXPECT_TRUE(plain.WaitForClose(milliseconds(5000)));
}

TEST_F(ServerTls, OldVersionsOtherProtocolsAndNoise) {
  FakeWorld world(options_);
  EXPECT_FALSE(TlsClient(world.port(), "", TLS1_1_VERSION).connected());
  EXPECT_TRUE(TlsClient(world.port(), "", TLS1_2_VERSION).connected());
  EXPECT_FALSE(TlsClient(world.port(), "\x02h2").connected());
  HttpClient noise(world.port());
  noise.Send(std::string(3000, '\xee'));
  EXPECT_TRUE(noise.WaitForClose(milliseconds(5000)));
}

/// What the client that load and batches use gets from https://HOST.
HttpAnswer PostOver(const std::string& host, uint16_t port, const std::string& ca_file, std::string body,
                    PostClient::PieceSink on_piece = nullptr) {
  boost::asio::io_context io;
  const auto url = ParseServerUrl(Cat("https://", host, ":", port));
  auto trust = TrustFor(*url, ca_file);
  if (!trust.ok()) return {.end = HttpEnd::kUnreachable, .why = std::string(trust.status().message())};
  PostClient client(io, *url, *std::move(trust));
  if (!client.Resolve().ok()) return {.end = HttpEnd::kUnreachable, .why = "not found"};
  HttpAnswer answer;
  boost::asio::co_spawn(
      io,
      [&]() -> boost::asio::awaitable<void> {
        for (int i = 0; i < 2; ++i) {  // The second on the same connection.
          HttpPost post{.path = kChatPath, .body = body, .limit = milliseconds(10'000)};
          answer = co_await client.Post(std::move(post), on_piece);
        }
      },
      boost::asio::detached);
  io.run();
  return answer;
}

TEST_F(ServerTls, TheClientOfLoadAndBatchesSpeaksItToServersThatItBelieves) {
  FakeWorld world(options_);
  const std::string own = certificates_.Path("one.pem");
  const HttpAnswer whole = PostOver("localhost", world.port(), own, kHello);
  EXPECT_EQ(whole.end, HttpEnd::kWhole) << whole.why;
  EXPECT_EQ(whole.status, 200);
  std::string pieces;
  const HttpAnswer stream =
      PostOver("localhost", world.port(), own, kHelloStream, [&](std::string_view piece) { pieces += piece; });
  EXPECT_EQ(stream.end, HttpEnd::kWhole) << stream.why;
  EXPECT_THAT(pieces, HasSubstr("data: [DONE]"));
  EXPECT_TRUE(world.WaitForStats(IsIdle));

  certificates_.Make("two", 2);
  for (const std::string& ca_file : {std::string(), certificates_.Path("two.pem")}) {
    const HttpAnswer strange = PostOver("localhost", world.port(), ca_file, kHello);
    EXPECT_EQ(strange.end, HttpEnd::kUnreachable);
    EXPECT_THAT(strange.why, HasSubstr("--ca-file names whom to believe"));
  }
  EXPECT_EQ(PostOver("127.0.0.1", world.port(), own, kHello).end, HttpEnd::kUnreachable) << "it is localhost's";
  EXPECT_THAT(PostOver("localhost", world.port(), certificates_.Path("none.pem"), kHello).why, HasSubstr("none.pem"));
}

TEST_F(ServerTls, SlowHandshakesEnd) {
  options_.server.limits.header = milliseconds(150);
  FakeWorld world(options_);
  HttpClient silent(world.port());
  EXPECT_TRUE(silent.WaitForClose(milliseconds(10'000)));
  HttpClient begun(world.port());
  begun.Send(std::string("\x16\x03\x01\x02\x00", 5));  // The beginning of a ClientHello.
  EXPECT_TRUE(begun.WaitForClose(milliseconds(10'000)));
}

TEST_F(ServerTls, ANewCertificateIsForNewConnections) {
  FakeWorld world(options_);
  TlsClient before(world.port());
  EXPECT_EQ(before.serial(), 1);
  certificates_.Make("one", 2);
  world.server->server().RequestReload();
  for (int i = 0; i < 500 && TlsClient(world.port()).serial() != 2; ++i) std::this_thread::sleep_for(milliseconds(10));
  EXPECT_EQ(TlsClient(world.port()).serial(), 2);
  ASSERT_TRUE(before.SendPost(kChatPath, kHello));
  EXPECT_THAT(before.ReadAll(), HasSubstr("200 OK"));
  // One that is no good changes nothing.
  std::ofstream(certificates_.Path("one.pem")) << "not a certificate";
  world.server->server().RequestReload();
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(TlsClient(world.port()).serial(), 2);
}

TEST_F(ServerTls, DatesThatClientsMindAreWarnedOf) {
  const auto warning = [&](long begins_s, long ends_s) {
    certificates_.Make("dated", 1, begins_s, ends_s);
    const auto loaded = TlsIdentity::Load({certificates_.Path("dated.pem"), certificates_.Path("dated.key")});
    return loaded.ok() ? DatesWarning(**loaded, std::time(nullptr)) : std::string(loaded.status().message());
  };
  constexpr long kDay = 86400;
  EXPECT_EQ(warning(-60, 15 * kDay), "");
  EXPECT_THAT(warning(-60, 13 * kDay + 3600), HasSubstr(", in 13 days"));
  EXPECT_THAT(warning(-60, 3600), HasSubstr("less than a day"));
  EXPECT_THAT(warning(-2 * kDay, -kDay), HasSubstr("it ended on 20"));
  EXPECT_THAT(warning(kDay, 90 * kDay), HasSubstr("not yet"));
}

TEST_F(ServerTls, OneThatEndsSoonIsWarnedOfAtTheStartAndWhenItIsReadAgain) {
  std::ostringstream log;
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("", std::make_shared<spdlog::sinks::ostream_sink_mt>(log)));
  {
    FakeWorld world(options_);
    EXPECT_THAT(log.str(), ::testing::Not(HasSubstr("clients will refuse it")));
    certificates_.Make("one", 2, -7200, -3600);
    world.server->server().RequestReload();
    for (int i = 0; i < 500 && TlsClient(world.port()).serial() != 2; ++i)
      std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_THAT(log.str(), HasSubstr("one.pem: it ended on 20"));
  log.str("");
  { FakeWorld world(options_); }
  spdlog::set_default_logger(before);
  EXPECT_THAT(log.str(), HasSubstr("one.pem: it ended on 20"));
}

TEST_F(ServerTls, FaultsOfFilesAreNamed) {
  certificates_.Make("two", 2);
  const auto fault = [&](const std::string& certificate, const std::string& key) {
    const auto loaded = TlsIdentity::Load({certificates_.Path(certificate), certificates_.Path(key)});
    EXPECT_FALSE(loaded.ok());
    return std::string(loaded.status().message());
  };
  EXPECT_THAT(fault("none.pem", "one.key"), HasSubstr("none.pem: no certificate"));
  EXPECT_THAT(fault("one.pem", "none.key"), HasSubstr("none.key: no key"));
  EXPECT_THAT(fault("one.pem", "two.key"), HasSubstr("two.key: no key of this certificate"));
  EXPECT_THAT(fault("one.key", "one.key"), HasSubstr("one.key: no certificate"));
  ServerOptions options = options_.server;
  options.unix_now_s = [] { return int64_t{0}; };
  options.port = 0;
  EXPECT_TRUE(Server::CheckOptions(options).ok());
  options.tls_key = "";
  EXPECT_THAT(std::string(Server::CheckOptions(options).message()), HasSubstr("--tls-key"));
}

}  // namespace
}  // namespace kvist::serve
