// SPDX-License-Identifier: BSD-3-Clause
//
// process_group SIZE FOLDER: the patched ProcessGroupGloo in PyTorch's own
// library: eligible allreduces of the group that asked, what stays with gloo,
// and barriers. The ranks are processes; what they delegated is in their reports
// (SWITCHML_STATS_FILE).
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <c10d/FileStore.hpp>
#include <c10d/PrefixStore.hpp>
#include <c10d/ProcessGroupGloo.hpp>

namespace {

using c10d::ProcessGroupGloo;
using c10d::ReduceOp;

std::unique_ptr<ProcessGroupGloo> makeGroup(const std::shared_ptr<c10d::Store> &store, const std::string &name,
                                            int rank, int size) {
    ProcessGroupGloo::Options options;
    options.devices.push_back(ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
    options.threads = 2;
    options.timeout = std::chrono::milliseconds(30000);
    return std::make_unique<ProcessGroupGloo>(std::make_shared<c10d::PrefixStore>(name, store), rank, size, options);
}

bool reduces(ProcessGroupGloo &group, at::Tensor tensor, const at::Tensor &expected, ReduceOp op = ReduceOp::SUM) {
    std::vector<at::Tensor> tensors = {tensor};
    c10d::AllreduceOptions options;
    options.reduceOp = op;
    group.allreduce(tensors, options)->wait();
    const bool right = at::allclose(tensor.to(at::kDouble), expected.to(at::kDouble));  // not every type compares
    if (!right) {
        std::fprintf(stderr, "rank %d: wrong result for %s\n", group.getRank(), tensor.toString().c_str());
    }
    return right;
}

int run(const std::string &file, int rank, int size) {
    const auto store = std::make_shared<c10d::FileStore>(file, size);
    const auto group = makeGroup(store, "default", rank, size);
    group->useSwitchML(*store, std::chrono::milliseconds(30000));
    const auto other = makeGroup(store, "other", rank, size);
    const auto ones = at::ones({4, 5});
    const double sum = size * (size + 1) / 2.0;
    bool good = true;
    // carried by SwitchML
    good &= reduces(*group, ones * (rank + 1), ones * sum);
    good &= reduces(*group, (ones * (rank + 1)).to(at::kInt), (ones * sum).to(at::kInt));
    good &= reduces(*group, (ones * (rank + 1)).t(), ones.t() * sum);  // not contiguous
    good &= reduces(*group, at::empty({0}), at::empty({0}));
    good &= reduces(*group, (ones * (rank + 1)).requires_grad_(), ones * sum);
    good &= reduces(*group, (ones * (rank + 1)).to(at::kHalf), (ones * sum).to(at::kHalf));
    good &= reduces(*group, (ones * (rank + 1)).to(at::kBFloat16), (ones * sum).to(at::kBFloat16));
    // by gloo
    good &= reduces(*group, (ones * (rank + 1)).to(at::kDouble), (ones * sum).to(at::kDouble));
    good &= reduces(*group, ones * (rank + 1), ones * size, ReduceOp::MAX);
    good &= reduces(*other, ones * (rank + 1), ones * sum);
    // many under way, of both kinds, then a barrier that waits for them
    std::vector<at::Tensor> tensors;
    std::vector<std::shared_ptr<c10d::ProcessGroup::Work>> works;
    for (int i = 0; i < 20; ++i) {
        tensors.push_back((ones * (rank + i)).to(i % 3 == 0 ? at::kDouble : at::kFloat));
        std::vector<at::Tensor> one = {tensors.back()};
        works.push_back(group->allreduce(one));
    }
    group->barrier()->wait();
    for (int i = 0; i < 20; ++i) {
        good &= works[i]->isCompleted() && works[i]->isSuccess();
        good &= at::allclose(tensors[i].to(at::kFloat), ones * (sum - size + size * i));
    }
    return good ? 0 : 1;
}

}  // namespace

int main(int argc, char **argv) {
    if (argc != 3) {
        std::fprintf(stderr, "usage: process_group SIZE FOLDER\n");
        return 2;
    }
    const int size = std::atoi(argv[1]);
    std::vector<pid_t> children;
    for (int rank = 0; rank < size; ++rank) {
        const pid_t child = fork();
        if (child == 0) {
            std::exit(run(std::string(argv[2]) + "/store", rank, size));
        }
        children.push_back(child);
    }
    int result = 0;
    for (const pid_t child : children) {
        int status = 0;
        waitpid(child, &status, 0);
        result |= status != 0;
    }
    return result;
}
