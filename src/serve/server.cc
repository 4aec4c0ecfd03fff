#include "serve/server.h"

#include <csignal>
#include <map>
#include <unordered_set>
#include <utility>

#include <spdlog/spdlog.h>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/status.h"
#include "serve/http_connection.h"
#include "serve/tier_watch.h"
#include "serve/tls.h"

namespace kvist::serve {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr size_t kWorkers = 2;
constexpr std::chrono::milliseconds kFailGrace{3'000};  // For the error to reach the clients.
constexpr std::chrono::milliseconds kCloseGrace{1'000};
constexpr std::chrono::milliseconds kWatchEvery{1'000};
constexpr std::chrono::milliseconds kAcceptPause{100};  // When the system has no more descriptors.

/// For a connection above the limit, in one piece.
std::string TooManyText() {
  ApiError error = HttpError(503, "too many connections are open");
  error.type = "server_error";
  const std::string body = ErrorBody(error);
  return Cat("HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: ", body.size(),
             "\r\nRetry-After: 5\r\nConnection: close\r\n\r\n", body);
}

std::string Place(const tcp::endpoint& endpoint) {
  const std::string address = endpoint.address().to_string();
  return endpoint.address().is_v6() ? Cat("[", address, "]:", endpoint.port()) : Cat(address, ":", endpoint.port());
}

absl::StatusOr<tcp::endpoint> Resolve(asio::io_context& io, const std::string& host, uint16_t port) {
  if (host.empty()) {
    return absl::InvalidArgumentError("--host is empty: give an address, e.g. 127.0.0.1, or 0.0.0.0 for all");
  }
  error_code error;
  tcp::resolver resolver(io);
  const auto found = resolver.resolve(host, std::to_string(port), tcp::resolver::passive, error);
  if (error || found.empty()) {
    return absl::InvalidArgumentError(Cat("--host ", host, ": no such address (", error.message(), ")"));
  }
  for (const auto& entry : found) {
    if (entry.endpoint().address().is_v4()) return entry.endpoint();  // What most clients try for a name.
  }
  return found.begin()->endpoint();
}

absl::StatusOr<std::unique_ptr<Tenants>> MakeTenants(const ServerOptions& options, const Clock& clock) {
  return Tenants::Create({.api_keys = options.api_keys, .file = options.tenants_file}, clock);
}

/// Where to listen, unless strangers could come in.
absl::StatusOr<tcp::endpoint> AllowedEndpoint(asio::io_context& io, const ServerOptions& options,
                                              const Tenants& tenants) {
  KVIST_ASSIGN_OR_RETURN(const tcp::endpoint endpoint, Resolve(io, options.host, options.port));
  if (!endpoint.address().is_loopback() && tenants.open()) {
    return absl::InvalidArgumentError(
        Cat("listening on ", options.host, " lets other machines in, so an API key is required: ",
            "give one with --api-key, KVIST_API_KEY or --tenants, or listen on 127.0.0.1"));
  }
  return endpoint;
}

/// Nothing where none is wanted.
absl::StatusOr<std::shared_ptr<const TlsIdentity>> LoadIdentity(const ServerOptions& options) {
  if (options.tls_certificate.empty() && options.tls_key.empty()) return nullptr;
  if (options.tls_certificate.empty()) return absl::InvalidArgumentError("--tls-key needs --tls-cert");
  if (options.tls_key.empty()) return absl::InvalidArgumentError("--tls-cert needs --tls-key");
  return TlsIdentity::Load({.certificate = options.tls_certificate, .key = options.tls_key});
}

/// A certificate that clients will refuse is used all the same: the clocks may be wrong.
void WarnOfDates(const ServerOptions& options, const TlsIdentity& identity) {
  const std::string warning = DatesWarning(identity, options.unix_now_s());
  if (!warning.empty()) spdlog::warn("certificate: {}: {}", options.tls_certificate, warning);
}

absl::Status Listen(tcp::acceptor& acceptor, const tcp::endpoint& endpoint) {
  error_code error;
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (!error) return absl::OkStatus();
  if (error == asio::error::address_in_use) {
    return absl::AlreadyExistsError(
        Cat(Place(endpoint), " is in use by another program; choose another port with --port, or 0 for any"));
  }
  const std::string message = Cat("cannot listen on ", Place(endpoint), ": ", error.message());
  if (error == asio::error::access_denied) return absl::PermissionDeniedError(message);
  return absl::InvalidArgumentError(message);
}

}  // namespace

struct Server::Impl {
  enum class Phase : uint8_t { kServing, kDraining, kFailing, kClosing };

  Impl(ServerOptions server_options, std::unique_ptr<Tenants> server_tenants, std::unique_ptr<Metering> server_metering,
       bool on_loopback, ServedModel model, engine::Engine& engine, const Clock& clock)
      : options(std::move(server_options)),
        tenants(std::move(server_tenants)),
        metering(std::move(server_metering)),
        service({.cors_origin = options.cors_origin,
                 .on_loopback = on_loopback,
                 .unix_now_s = options.unix_now_s,
                 .max_wait_s = options.max_wait_s},
                std::move(model), engine, *tenants, *metering, clock),
        streams{.engine = engine,
                .tokenizer = *service.model().tokenizer,
                .clock = clock,
                .metrics = service.metrics(),
                .sessions = service.sessions(),
                .capsules = service.capsules(),
                .request_log = service.request_log(),
                .unix_now_s = options.unix_now_s,
                .post = [this](std::function<void()> run) { asio::post(io, std::move(run)); },
                .output_bytes_max = options.limits.output_bytes_max},
        host{service, streams, workers, options.limits},
        tier_watch(options.tier_places) {
    if (options.more_metrics) service.metrics().AddCollector(options.more_metrics);
  }

  ~Impl() {
    workers.join();
    service.engine().SetMeterBook(nullptr);
  }

  asio::awaitable<void> AcceptLoop();
  void Accept(tcp::socket socket);
  void WaitForSignal();
  void WaitForHangup();
  void WatchTiers();
  void Reload();
  void ReloadTenants();
  void ReloadIdentity();
  void NextPhase();
  void Finish();

  template <class Action>
  void ForEachConnection(Action action) {
    const std::vector<std::shared_ptr<HttpConnection>> all(connections.begin(), connections.end());
    for (const auto& connection : all) action(*connection);
  }

  ServerOptions options;  ///< Changes on the network thread; of what workers read, nothing does.
  asio::io_context io{1};
  asio::thread_pool workers{kWorkers};
  tcp::acceptor acceptor{io};
  tcp::endpoint endpoint;  ///< In use; kept after the acceptor has closed.
  asio::signal_set signals{io}, hangups{io};
  asio::steady_timer phase_end{io}, watch{io};
  std::shared_ptr<const TlsIdentity> identity;  ///< Of new connections; null = plain HTTP.
  const std::unique_ptr<Tenants> tenants;
  const std::unique_ptr<Metering> metering;
  Service service;
  StreamHost streams;
  ConnectionHost host;
  TierWatch tier_watch;
  std::unordered_set<std::shared_ptr<HttpConnection>> connections;
  std::map<asio::ip::address, uint32_t> connections_from;
  Phase phase = Phase::kServing;
};

asio::awaitable<void> Server::Impl::AcceptLoop() {
  while (acceptor.is_open()) {
    auto [error, socket] = co_await acceptor.async_accept(asio::as_tuple(asio::use_awaitable));
    if (!error) {
      Accept(std::move(socket));
    } else if (error != asio::error::operation_aborted && acceptor.is_open()) {
      spdlog::warn("a connection could not be accepted: {}", error.message());
      asio::steady_timer pause(io, kAcceptPause);
      co_await pause.async_wait(asio::as_tuple(asio::use_awaitable));
    }
  }
}

void Server::Impl::Accept(tcp::socket socket) {
  error_code ignored;
  ServeMetrics& metrics = service.metrics();
  const uint32_t from_one_max = options.limits.connections_per_address_max;
  const asio::ip::address from = socket.remote_endpoint(ignored).address();
  const auto others = connections_from.find(from);
  const bool too_many_from_one = from_one_max > 0 && others != connections_from.end() && others->second >= from_one_max;
  if (connections.size() >= options.limits.connections_max || too_many_from_one) {
    metrics.connections_refused.fetch_add(1);
    if (identity != nullptr) return;  // A handshake would be too much.
    socket.non_blocking(true, ignored);
    socket.write_some(asio::buffer(TooManyText()), ignored);
    return;
  }
  socket.set_option(tcp::no_delay(true), ignored);
  socket.set_option(asio::socket_base::keep_alive(true), ignored);  // Finds out about machines that vanished.
  auto channel = identity != nullptr ? identity->NewChannel(std::move(socket)) : NewPlainChannel(std::move(socket));
  auto connection = std::make_shared<HttpConnection>(host, std::move(channel));
  connections.insert(connection);
  ++connections_from[from];
  metrics.connections_open.fetch_add(1);
  asio::co_spawn(
      io, [connection] { return connection->Run(); },
      [this, connection, from](const std::exception_ptr& failure) {
        if (failure != nullptr) {  // Out of memory, say: this client's loss, nobody else's.
          spdlog::error("a connection failed");
          connection->Close();
        }
        connections.erase(connection);
        if (const auto it = connections_from.find(from); it != connections_from.end() && --it->second == 0) {
          connections_from.erase(it);
        }
        service.metrics().connections_open.fetch_sub(1);
        if (phase != Phase::kServing && connections.empty()) Finish();
      });
}

void Server::Impl::WaitForSignal() {
  signals.async_wait([this](error_code error, int /*number*/) {
    if (error) return;
    NextPhase();
    WaitForSignal();
  });
}

void Server::Impl::WaitForHangup() {
  hangups.async_wait([this](error_code error, int /*number*/) {
    if (error) return;
    Reload();
    WaitForHangup();
  });
}

void Server::Impl::WatchTiers() {
  service.engine().RefreshTiers();  // For the next look.
  for (const TierWatch::News& news : tier_watch.Look(service.engine().Stats().tier_figures)) {
    spdlog::log(news.worse ? spdlog::level::warn : spdlog::level::info, "{}", news.text);
  }
  watch.expires_after(kWatchEvery);
  watch.async_wait([this](error_code error) {
    if (!error) WatchTiers();
  });
}

void Server::Impl::Reload() {
  asio::post(workers, [this] {
    if (tenants->has_file()) ReloadTenants();
    if (!options.tls_certificate.empty()) ReloadIdentity();
    if (options.reread) options.reread();
  });
}

void Server::Impl::ReloadTenants() {
  if (const absl::Status status = tenants->Reload(); status.ok()) {
    spdlog::info("tenants: {} read again, {} of them", options.tenants_file, tenants->All().size());
  } else {
    spdlog::error("tenants stay as they were: {}", std::string(status.message()));
  }
}

void Server::Impl::ReloadIdentity() {
  absl::StatusOr<std::shared_ptr<const TlsIdentity>> fresh = LoadIdentity(options);
  if (!fresh.ok()) return spdlog::error("the certificate stays as it was: {}", std::string(fresh.status().message()));
  spdlog::info("certificate: {} read again, valid until {}", options.tls_certificate, UtcText((*fresh)->ends_unix_s()));
  WarnOfDates(options, **fresh);
  asio::post(io, [this, fresh = *std::move(fresh)] { identity = fresh; });
}

/// Each step of a stop is harder than the one before. Runs on a request to stop and when a phase's time is over.
void Server::Impl::NextPhase() {
  std::chrono::milliseconds time{0};
  error_code ignored;
  switch (phase) {
    case Phase::kServing:
      phase = Phase::kDraining;
      time = options.drain;
      spdlog::info("stopping: no new connections, {} open; a second signal ends them at once", connections.size());
      service.SetStopping();
      acceptor.close(ignored);
      ForEachConnection([](HttpConnection& connection) { connection.Stop(); });
      break;
    case Phase::kDraining:
      phase = Phase::kFailing;
      time = kFailGrace;
      ForEachConnection([](HttpConnection& connection) { connection.Fail(); });
      break;
    case Phase::kFailing:
      phase = Phase::kClosing;
      time = kCloseGrace;
      ForEachConnection([](HttpConnection& connection) { connection.Close(); });
      break;
    case Phase::kClosing:
      return Finish();
  }
  if (connections.empty()) return Finish();
  phase_end.expires_after(time);
  phase_end.async_wait([this](error_code error) {
    if (!error && phase_end.expiry() <= std::chrono::steady_clock::now()) NextPhase();
  });
}

void Server::Impl::Finish() {
  io.stop();
}

absl::Status Server::CheckOptions(const ServerOptions& options) {
  asio::io_context io;
  const RealClock clock;
  KVIST_ASSIGN_OR_RETURN(const std::unique_ptr<Tenants> tenants, MakeTenants(options, clock));
  KVIST_ASSIGN_OR_RETURN(const tcp::endpoint endpoint, AllowedEndpoint(io, options, *tenants));
  KVIST_RETURN_IF_ERROR(LoadIdentity(options).status());
  tcp::acceptor acceptor(io);
  return Listen(acceptor, endpoint);
}

absl::StatusOr<std::unique_ptr<Server>> Server::Create(ServerOptions options, ServedModel model, engine::Engine& engine,
                                                       const Clock& clock) {
  asio::io_context io;
  KVIST_ASSIGN_OR_RETURN(std::unique_ptr<Tenants> tenants, MakeTenants(options, clock));
  KVIST_ASSIGN_OR_RETURN(const tcp::endpoint endpoint, AllowedEndpoint(io, options, *tenants));
  KVIST_ASSIGN_OR_RETURN(std::unique_ptr<Metering> metering, Metering::Create({.db_path = options.usage_db,
                                                                               .model = model.id,
                                                                               .block_bytes = model.block_bytes,
                                                                               .places = options.usage_places,
                                                                               .unix_now_s = options.unix_now_s},
                                                                              *tenants));
  KVIST_ASSIGN_OR_RETURN(std::shared_ptr<const TlsIdentity> identity, LoadIdentity(options));
  const bool on_loopback = endpoint.address().is_loopback();
  auto impl = std::make_unique<Impl>(std::move(options), std::move(tenants), std::move(metering), on_loopback,
                                     std::move(model), engine, clock);
  impl->identity = std::move(identity);
  if (impl->identity != nullptr) WarnOfDates(impl->options, *impl->identity);
  KVIST_RETURN_IF_ERROR(Listen(impl->acceptor, endpoint));
  impl->endpoint = impl->acceptor.local_endpoint();
  if (impl->options.handle_signals) {  // One that comes before Run is kept for it.
    error_code ignored;
    impl->signals.add(SIGINT, ignored);
    impl->signals.add(SIGTERM, ignored);
    impl->hangups.add(SIGHUP, ignored);
  }
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

std::string Server::url() const {
  return (impl_->options.tls_certificate.empty() ? "http://" : "https://") + Place(impl_->endpoint);
}
uint16_t Server::port() const {
  return impl_->endpoint.port();
}

void Server::Run() {
  Impl& impl = *impl_;
  impl.service.engine().Start();
  asio::co_spawn(impl.io, impl.AcceptLoop(), [](const std::exception_ptr& failure) {
    if (failure != nullptr) spdlog::error("no more connections are accepted");
  });
  if (impl.options.handle_signals) {
    impl.WaitForSignal();
    impl.WaitForHangup();
  }
  impl.WatchTiers();
  impl.io.run();
  error_code ignored;
  impl.hangups.clear(ignored);
  impl.signals.clear(ignored);  // From here on a signal ends the process, should the engine's last step hang.
  impl.workers.join();
  impl.service.engine().Stop(/*drain=*/false);
}

void Server::RequestReload() {
  asio::post(impl_->io, [impl = impl_.get()] { impl->Reload(); });
}

void Server::Adopt(const ServerOptions& options) {
  asio::post(impl_->io, [impl = impl_.get(), limits = options.limits, drain = options.drain, wait = options.max_wait_s,
                         origin = options.cors_origin] {
    impl->options.limits = limits;
    impl->options.drain = drain;
    impl->service.Adopt(origin, wait);
  });
}

void Server::RequestStop() {
  asio::post(impl_->io, [impl = impl_.get()] { impl->NextPhase(); });
}

}  // namespace kvist::serve
