// SPDX-License-Identifier: BSD-3-Clause
#include "controller_client.hpp"

#include <algorithm>
#include <functional>
#include <random>
#include <utility>

#include "authorization.hpp"
#include "controller_access.hpp"
#include "controller_failures.hpp"

namespace switchml {
namespace {

using Clock = std::chrono::steady_clock;

// gRPC's deadlines are made of a clock that may be set while the session opens: only as a call begins.
std::chrono::system_clock::time_point from_now(std::chrono::nanoseconds limit) {
    return std::chrono::system_clock::now() + std::chrono::duration_cast<std::chrono::system_clock::duration>(limit);
}

constexpr std::chrono::milliseconds kGlance{50};     // how soon a cancelled opening ends
constexpr std::chrono::milliseconds kFarewell{500};  // closing must not wait for a switch that died

constexpr std::uint64_t kParameterBits = 18;
constexpr std::uint64_t kParameterMask = (1U << kParameterBits) - 1;

// 12 bits of window, 5 of threads, 1 of packet size.
std::uint64_t pack_parameters(const Settings &settings) {
    return std::uint64_t{settings.max_outstanding_packets - 1} << 6 | std::uint64_t{settings.num_threads - 1} << 1 |
           (settings.packet_numel == 256 ? 1U : 0U);
}

std::string describe_parameters(std::uint64_t packed) {
    return "max_outstanding_packets=" + std::to_string((packed >> 6) + 1) +
           ", num_threads=" + std::to_string((packed >> 1 & 0x1FU) + 1) +
           ", packet_numel=" + ((packed & 1U) != 0 ? "256" : "64");
}

// Jobs may start within the same moment, and an id of the past must not come again: not from the clock.
std::uint64_t random_number() {
    std::random_device device;
    return std::uint64_t{device()} << 32 | device();
}

// Whether the controller still answers, asked beside a call that may take as long as other workers do. Any answer is a
// sign of life, also that of a controller that knows no leases. gRPC's own keepalive pings would not do: unless it
// allows more, a server takes one in five minutes and closes the connection after a few more (doc/keepalive.md of
// gRPC).
class LifeSign {
  public:
    using Reader = grpc::ClientAsyncResponseReader<switchml_proto::RenewResponse>;
    using Prepare = std::function<std::unique_ptr<Reader>(grpc::ClientContext &)>;

    LifeSign(std::chrono::milliseconds limit, Prepare prepare)
        : limit_(limit), prepare_(std::move(prepare)), next_(Clock::now() + period()) {}

    // Where it is time to. Its answer comes out of the queue with this object's address as its tag.
    void ask() {
        if (reader_ != nullptr || Clock::now() < next_) return;
        context_ = std::make_unique<grpc::ClientContext>();
        reader_ = prepare_(*context_);
        reader_->StartCall();
        reader_->Finish(&response_, &status_, this);
    }

    void take_answer() {
        is_missing_ = status_.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
        was_there_ = was_there_ || !is_missing_;
        reader_.reset();
        next_ = Clock::now() + period();
    }

    // The last question had no answer within the limit.
    bool is_missing() const noexcept { return is_missing_; }
    // An earlier one had.
    bool was_there() const noexcept { return was_there_; }

    void cancel() {
        if (reader_ != nullptr) context_->TryCancel();
    }

  private:
    std::chrono::milliseconds period() const { return std::min(limit_ / 3, std::chrono::milliseconds(1000)); }

    const std::chrono::milliseconds limit_;
    const Prepare prepare_;
    Clock::time_point next_;
    switchml_proto::RenewResponse response_;
    grpc::Status status_;
    std::unique_ptr<grpc::ClientContext> context_;
    std::unique_ptr<Reader> reader_;
    bool is_missing_ = false;
    bool was_there_ = false;
};

template <class Request>
void name_worker(Request &request, const Settings &settings) {
    request.set_rank(settings.rank);
    request.set_num_workers(settings.num_workers);
}

// A controller that is busy with calls of others has no room for ours at this moment.
// https://github.com/grpc/proposal/blob/master/A6-client-retries.md
constexpr const char *kRetries = R"({"methodConfig": [{"name": [{}], "retryPolicy": {
    "maxAttempts": 5, "initialBackoff": "0.5s", "maxBackoff": "5s", "backoffMultiplier": 2,
    "retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}}]})";

}  // namespace

ControllerClient::ControllerClient(const Settings &settings)
    : settings_(settings),
      target_(controller_target(settings)),
      connect_deadline_(Clock::now() + std::chrono::milliseconds(settings.connect_timeout_ms)),
      deadline_(connect_deadline_ + std::chrono::milliseconds(settings.job_timeout_ms)) {}

void ControllerClient::connect() {
    authorization_ = read_authorization(settings_);
    session_token_ = read_session_token(settings_);
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // the controller is on the cluster's own network
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 100);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetServiceConfigJSON(kRetries);
    channel_ = grpc::CreateCustomChannel(target_, make_credentials(settings_), arguments);
    session_ = switchml_proto::Session::NewStub(channel_);
    sync_ = switchml_proto::Sync::NewStub(channel_);
    lease_ = switchml_proto::Lease::NewStub(channel_);
    await_connection();
}

void ControllerClient::await_connection() {
    for (;;) {
        const std::chrono::nanoseconds left = connect_deadline_ - Clock::now();
        if (channel_->WaitForConnected(from_now(std::min<std::chrono::nanoseconds>(left, kGlance)))) return;
        check_not_cancelled(settings_);
        if (left <= kGlance) throw unreachable();
    }
}

// Of the system, else of gRPC, which says why there is no connection to calls alone.
std::string ControllerClient::why_no_connection() {
    if (std::string reason = probe_connection(settings_, kFarewell); !reason.empty()) return reason;
    grpc::ClientContext context;
    context.set_deadline(from_now(kFarewell));
    switchml_proto::RenewResponse response;
    return connection_failure(lease_->Renew(&context, switchml_proto::LeaseRequest(), &response));
}

Error ControllerClient::unreachable() {
    const std::string reason = why_no_connection();
    const std::string time = std::to_string(settings_.connect_timeout_ms) + " ms";
    const std::string check = "; check SWITCHML_CONTROLLER and that the controller runs";
    if (reason.find("refused") != std::string::npos) {
        return {SWITCHML_EUNREACHABLE, "connections to the switch controller at " + target_ + " were refused for " +
                                           time + ": nothing listens on that port" + check};
    }
    return {SWITCHML_EUNREACHABLE,
            "the switch controller at " + target_ + " did not answer within " + time +
                (reason.empty() ? "" : ": " + reason) + check + ", and " +
                (settings_.tls_ca.empty()
                     ? "whether it wants TLS (SWITCHML_TLS_CA)"
                     : "that its certificate and ours are valid (SWITCHML_TLS_CA, SWITCHML_TLS_CERT)")};
}

std::uint64_t ControllerClient::broadcast(std::uint64_t value) {
    switchml_proto::BroadcastRequest request;
    request.set_value(value);
    name_worker(request, settings_);
    request.set_root(0);
    request.set_job(settings_.job_name);
    switchml_proto::BroadcastResponse response;
    const auto context = make_context();
    check(call(*context, response,
               [&](auto *queue) { return sync_->PrepareAsyncBroadcast(context.get(), request, queue); }),
          "Sync.Broadcast");
    return response.value();
}

void ControllerClient::barrier() {
    switchml_proto::BarrierRequest request;
    request.set_num_workers(settings_.num_workers);
    request.set_job(settings_.job_name);
    request.set_rank(settings_.rank);
    switchml_proto::BarrierResponse response;
    const auto context = make_context();
    check(call(*context, response,
               [&](auto *queue) { return sync_->PrepareAsyncBarrier(context.get(), request, queue); }),
          "Sync.Barrier");
}

switchml_proto::UdpSessionResponse ControllerClient::request_session(std::uint64_t session_id,
                                                                     switchml_proto::UdpSessionRequest request) {
    request.set_session_id(session_id);
    name_worker(request, settings_);
    switchml_proto::UdpSessionResponse response;
    const auto context = make_context();
    check(call(*context, response,
               [&](auto *queue) { return session_->PrepareAsyncUdpSession(context.get(), request, queue); }),
          "Session.UdpSession");
    if (response.session_id() != session_id || address_in(response).is_unspecified())
        throw refusal(*context, address_in(request));
    if (response.data_port() > 65535) {
        throw Error(SWITCHML_EREFUSED, "the switch controller at " + target_ + " named UDP port " +
                                           std::to_string(response.data_port()) + ", expected at most 65535");
    }
    return response;
}

switchml_proto::RdmaSessionResponse ControllerClient::request_session(std::uint64_t session_id,
                                                                      switchml_proto::RdmaSessionRequest request) {
    const auto narrow = static_cast<std::uint32_t>(session_id);  // this message has no room for more
    request.set_session_id(narrow);
    name_worker(request, settings_);
    switchml_proto::RdmaSessionResponse response;
    const auto context = make_context();
    check(call(*context, response,
               [&](auto *queue) { return session_->PrepareAsyncRdmaSession(context.get(), request, queue); }),
          "Session.RdmaSession");
    const bool complete = response.qpns_size() == request.qpns_size() && response.psns_size() == request.psns_size();
    if (static_cast<std::uint32_t>(response.session_id()) != narrow || response.ipv4() == 0 || !complete)
        throw refusal(*context, request.ipv4());
    return response;
}

ControllerClient::Renewal ControllerClient::renew_lease(std::uint64_t session_id, std::chrono::milliseconds limit) {
    switchml_proto::LeaseRequest request;
    request.set_session_id(session_id);
    request.set_rank(settings_.rank);
    grpc::ClientContext context;
    prepare(context, limit);
    {
        const std::lock_guard lock(renewal_mutex_);
        if (no_renewals_) return {};
        renewal_ = &context;
    }
    switchml_proto::RenewResponse response;
    const grpc::Status status = lease_->Renew(&context, request, &response);
    const std::lock_guard lock(renewal_mutex_);
    renewal_ = nullptr;
    if (status.ok()) return {response, {}};
    const bool silent = status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
    const std::string reason = connection_failure(status);
    return {std::nullopt, silent ? "" : reason.empty() ? status.error_message() : reason};
}

void ControllerClient::cancel_renewal() {
    const std::lock_guard lock(renewal_mutex_);
    no_renewals_ = true;
    if (renewal_ != nullptr) renewal_->TryCancel();
}

void ControllerClient::end_lease(std::uint64_t session_id) {
    switchml_proto::LeaseRequest request;
    request.set_session_id(session_id);
    request.set_rank(settings_.rank);
    grpc::ClientContext context;
    prepare(context, kFarewell);
    switchml_proto::EndResponse response;
    (void)lease_->End(&context, request, &response);  // a lease that is not ended runs out
}

// A call of the opening. Where that is cancelled, the call is too: its status is CANCELLED, or what came just before.
template <class Response, class Prepare>
grpc::Status ControllerClient::call(grpc::ClientContext &context, Response &response, Prepare begin) {
    const std::chrono::milliseconds limit(settings_.connect_timeout_ms);
    grpc::CompletionQueue queue;
    LifeSign sign(limit, [&](grpc::ClientContext &asking) {
        prepare(asking, limit);
        return lease_->PrepareAsyncRenew(&asking, switchml_proto::LeaseRequest(), &queue);
    });
    const auto reader = begin(&queue);
    grpc::Status status;
    void *tag = nullptr;
    bool ok = false;
    reader->StartCall();
    reader->Finish(&response, &status, &queue);
    for (;;) {
        const bool came = queue.AsyncNext(&tag, &ok, from_now(kGlance)) == grpc::CompletionQueue::GOT_EVENT;
        if (came && tag == &queue) break;
        if (came) sign.take_answer();
        if (sign.is_missing() || (settings_.is_cancelled && settings_.is_cancelled())) {
            context.TryCancel();
        } else {
            sign.ask();
        }
    }
    sign.cancel();
    queue.Shutdown();
    while (queue.Next(&tag, &ok)) {
    }
    has_answered_ = has_answered_ || status.ok() || sign.was_there();
    if (sign.is_missing() && status.error_code() == grpc::StatusCode::CANCELLED)
        throw has_answered_ ? silent() : unreachable();  // gRPC 1.30 takes a port that says nothing for connected
    return status;
}

// It has answered before.
Error ControllerClient::silent() const {
    return {SWITCHML_EUNREACHABLE, "the switch controller at " + target_ + " has stopped answering: nothing for " +
                                       std::to_string(settings_.connect_timeout_ms) +
                                       " ms; see whether it still runs, and the network to it"};
}

std::unique_ptr<grpc::ClientContext> ControllerClient::make_context() const {
    auto context = std::make_unique<grpc::ClientContext>();
    prepare(*context, deadline_ - Clock::now());
    return context;
}

void ControllerClient::prepare(grpc::ClientContext &context, std::chrono::nanoseconds limit) const {
    context.set_deadline(from_now(limit));
    if (!authorization_.empty()) context.AddMetadata("authorization", authorization_);
    if (!session_token_.empty()) context.AddMetadata("switchml-session-token", session_token_);
}

Error ControllerClient::refusal(const grpc::ClientContext &context, const wire::IpAddress &local_address) const {
    const auto &metadata = context.GetServerTrailingMetadata();
    const auto reason = metadata.find("switchml-refusal");
    const std::string text = "the switch controller at " + target_ + " refused rank " + std::to_string(settings_.rank) +
                             " of " + std::to_string(settings_.num_workers) + " at " + wire::to_text(local_address);
    if (reason == metadata.end()) return {SWITCHML_EREFUSED, text + " without saying why"};
    return {SWITCHML_EREFUSED, text + ": " + std::string(reason->second.data(), reason->second.size())};
}

void ControllerClient::check(const grpc::Status &status, const std::string &method) const {
    if (status.ok()) return;
    check_not_cancelled(settings_);
    const std::chrono::milliseconds limit{std::uint64_t{settings_.connect_timeout_ms} + settings_.job_timeout_ms};
    const bool awaits_workers = method.rfind("Sync.", 0) == 0;
    throw call_failure(status,
                       {method, target_, settings_.num_workers, awaits_workers, limit, Clock::now() >= deadline_});
}

std::uint64_t make_session_id(std::uint64_t number, const Settings &settings) {
    return (number & ~kParameterMask) | pack_parameters(settings);
}

void check_session_id(std::uint64_t session_id, const Settings &settings) {
    const std::uint64_t theirs = session_id & kParameterMask;
    const std::uint64_t ours = pack_parameters(settings);
    if (theirs == ours) return;
    throw Error(SWITCHML_ECONFIG, "rank " + std::to_string(settings.rank) + " has " + describe_parameters(ours) +
                                      ", rank 0 has " + describe_parameters(theirs) +
                                      "; they must be equal on all workers");
}

std::uint64_t agree_on_session_id(ControllerClient &client, const Settings &settings) {
    const std::uint64_t session_id =
        client.broadcast(settings.rank == 0 ? make_session_id(random_number(), settings) : 0);
    check_session_id(session_id, settings);
    return session_id;
}

}  // namespace switchml
