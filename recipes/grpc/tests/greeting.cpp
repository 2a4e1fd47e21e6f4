// SPDX-License-Identifier: BSD-3-Clause
// A server and a client of one unary call over loopback: a call that is answered, one that is refused, one whose
// deadline passes, and what the server offers, by reflection. Prints gRPC's version.
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <iostream>
#include <memory>
#include <numeric>
#include <string>

#include "greeting.grpc.pb.h"

namespace {

class Greeter final : public greeting::Greeter::Service {
  grpc::Status Greet(grpc::ServerContext* context, const greeting::Request* request, greeting::Reply* reply) override {
    if (request->name().empty()) return {grpc::StatusCode::INVALID_ARGUMENT, "no name"};
    if (request->name() == "late") {
      while (!context->IsCancelled()) {
      }
      return grpc::Status::CANCELLED;
    }
    reply->set_text("Hello " + request->name());
    reply->set_sum(std::accumulate(request->numbers().begin(), request->numbers().end(), std::int64_t{0}));
    return grpc::Status::OK;
  }
};

bool Expect(bool right, const char* what) {
  if (!right) std::cerr << what << " went wrong\n";
  return right;
}

grpc::Status Call(greeting::Greeter::Stub& stub, const std::string& name, std::chrono::milliseconds allowed,
                  greeting::Reply* reply) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + allowed);
  context.set_wait_for_ready(true);
  greeting::Request request;
  request.set_name(name);
  for (int number = 1; number <= 1000; ++number) request.add_numbers(number);
  return stub.Greet(&context, request, reply);
}

}  // namespace

int main() {
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  Greeter service;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (!Expect(server != nullptr && port != 0, "starting the server")) return 1;

  const auto channel = grpc::CreateChannel("127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials());
  const auto stub = greeting::Greeter::NewStub(channel);
  greeting::Reply reply;
  using std::chrono::milliseconds;
  const grpc::Status answered = Call(*stub, "loopback", milliseconds(30000), &reply);
  const grpc::Status refused = Call(*stub, "", milliseconds(30000), &reply);
  const bool right = Expect(answered.ok() && refused.error_code() == grpc::StatusCode::INVALID_ARGUMENT, "the status") &&
                     Expect(refused.error_message() == "no name", "the reason");
  reply.Clear();
  const bool again = Expect(Call(*stub, "loopback", milliseconds(30000), &reply).ok(), "the second call") &&
                     Expect(reply.text() == "Hello loopback" && reply.sum() == 500500, "the reply") &&
                     Expect(Call(*stub, "late", milliseconds(200), &reply).error_code() ==
                                grpc::StatusCode::DEADLINE_EXCEEDED, "the deadline");
  server->Shutdown();
  std::cout << grpc::Version() << '\n';
  return right && again ? 0 : 1;
}
