// SPDX-License-Identifier: Apache-2.0
// Calls libminiops.so a known number of times, without Python.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "miniops/generated_dispatch.h"
#include "miniops/tensor.h"

namespace {

struct Options {
    int threads = 1;
    std::uint64_t calls = 1000;
    std::uint64_t throw_every = 0;
    bool wait = false;
};

struct ThreadResult {
    pid_t thread_id = 0;
    std::uint64_t thrown_by_constructor = 0;
    std::uint64_t thrown_by_call = 0;
    double checksum = 0;
};

constexpr const char* kUsage =
    "usage: miniops_driver [--threads T] [--calls N] [--wait] [--throw-every K]\n"
    "  --threads T      threads that call (1)\n"
    "  --calls N        calls of each operator in each thread (1000)\n"
    "  --wait           after printing \"ready <pid>\", wait for a line on stdin\n"
    "  --throw-every K  make each K-th call of an operator throw: in turns from the backend's constructor and from\n"
    "                   its call\n";

[[noreturn]] void ExitWithUsage(const std::string& message) {
    std::fprintf(stderr, "miniops_driver: %s\n%s", message.c_str(), kUsage);
    std::exit(2);
}

std::uint64_t ParseCount(const std::string& option, const char* text) {
    char* end = nullptr;
    const std::uint64_t count = text == nullptr ? 0 : std::strtoull(text, &end, 10);
    if (text == nullptr || end == text || *end != '\0' || count == 0) {
        ExitWithUsage(option + " needs a whole number above zero");
    }
    return count;
}

Options ParseOptions(int argc, char** argv) {
    Options options;
    for (int position = 1; position < argc; ++position) {
        const std::string option = argv[position];
        if (option == "--wait") {
            options.wait = true;
        } else if (option == "--threads") {
            options.threads = static_cast<int>(ParseCount(option, argv[++position]));
        } else if (option == "--calls") {
            options.calls = ParseCount(option, argv[++position]);
        } else if (option == "--throw-every") {
            options.throw_every = ParseCount(option, argv[++position]);
        } else {
            ExitWithUsage("unknown option " + option);
        }
    }
    return options;
}

// A tensor with memory of its own, filled with a repeating pattern.
class OwnedTensor {
public:
    explicit OwnedTensor(std::vector<std::size_t> shape) {
        std::size_t elements = 1;
        for (const std::size_t size : shape) elements *= size;
        for (std::size_t element = 0; element < elements; ++element) {
            values_.push_back(static_cast<float>(element % 7) * 0.25F - 0.5F);
        }
        view_ = miniops::MakeContiguousTensor(values_.data(), std::move(shape));
    }
    const miniops::Tensor& view() const { return view_; }
    double Sum() const {
        double sum = 0;
        for (const float value : values_) sum += value;
        return sum;
    }

private:
    std::vector<float> values_;
    miniops::Tensor view_;
};

ThreadResult RunThread(const Options& options) {
    namespace dispatch = miniops::generated_dispatch;
    ThreadResult result;
    result.thread_id = gettid();

    const miniops::Handle handle;
    const miniops::Config config;
    const OwnedTensor matrix({13, 4});
    const OwnedTensor row({4});
    const OwnedTensor sum({13, 4});
    const OwnedTensor product({13, 4});
    const OwnedTensor left({4, 48, 64});
    const OwnedTensor right({4, 64, 6});
    const OwnedTensor matrix_product({4, 48, 6});
    const OwnedTensor hidden({8, 64});
    const OwnedTensor normalised({8, 64});
    const std::optional<miniops::Tensor> weight;
    const float epsilon = 1e-6F;

    // For a bad call `out` is replaced: by one of a shape that never fits, or by one without memory.
    const OwnedTensor misfit({3, 5});
    const auto call_all = [&](const auto& out_of) {
        const auto call = [&](const auto& function) {
            try {
                function();
                return true;
            } catch (const std::invalid_argument&) {
                return false;
            }
        };
        std::uint64_t thrown = 0;
        thrown += !call([&] { dispatch::CallAdd(handle, config, matrix.view(), matrix.view(), out_of(sum)); });
        thrown += !call([&] { dispatch::CallMul(handle, config, matrix.view(), row.view(), out_of(product)); });
        thrown += !call([&] { dispatch::CallGemm(handle, config, left.view(), right.view(), out_of(matrix_product)); });
        thrown +=
            !call([&] { dispatch::CallRmsNorm(handle, config, hidden.view(), weight, epsilon, out_of(normalised)); });
        return thrown;
    };

    std::uint64_t bad_rounds = 0;
    for (std::uint64_t round = 1; round <= options.calls; ++round) {
        if (options.throw_every == 0 || round % options.throw_every != 0) {
            if (call_all([](const OwnedTensor& out) { return out.view(); }) != 0) {
                throw std::logic_error("a call that is right was refused");
            }
        } else if (bad_rounds++ % 2 == 0) {
            result.thrown_by_constructor += call_all([&](const OwnedTensor&) { return misfit.view(); });
        } else {
            result.thrown_by_call += call_all([](const OwnedTensor& out) {
                miniops::Tensor without_memory = out.view();
                without_memory.data = nullptr;
                return without_memory;
            });
        }
    }
    result.checksum = sum.Sum() + product.Sum() + matrix_product.Sum() + normalised.Sum();
    return result;
}

void PrintReport(const Options& options, const std::vector<ThreadResult>& results) {
    const std::uint64_t all_calls = options.calls * results.size();
    std::uint64_t thrown_by_constructor = 0;
    std::uint64_t thrown_by_call = 0;
    double checksum = 0;
    for (const ThreadResult& result : results) {
        thrown_by_constructor += result.thrown_by_constructor;
        thrown_by_call += result.thrown_by_call;
        checksum += result.checksum;
    }
    std::printf("{\"pid\":%d,\"calls\":{", getpid());
    const char* separator = "";
    for (const char* name : {"add", "mul", "gemm", "rms_norm"}) {
        std::printf("%s\"%s\":%ju", separator, name, static_cast<std::uintmax_t>(all_calls));
        separator = ",";
    }
    std::printf("},\"calls_per_thread_and_operator\":%ju,\"thread_ids\":[", static_cast<std::uintmax_t>(options.calls));
    separator = "";
    for (const ThreadResult& result : results) {
        std::printf("%s%d", separator, result.thread_id);
        separator = ",";
    }
    std::printf("],\"thrown_by_constructor\":%ju,\"thrown_by_call\":%ju,\"checksum\":%.9g}\n",
                static_cast<std::uintmax_t>(thrown_by_constructor), static_cast<std::uintmax_t>(thrown_by_call),
                checksum);
}

}  // namespace

int main(int argc, char** argv) {
    const Options options = ParseOptions(argc, argv);
    std::printf("ready %d\n", getpid());
    std::fflush(stdout);
    if (options.wait) {
        int character = 0;
        do {
            character = std::getchar();
        } while (character != '\n' && character != EOF);
    }

    std::vector<ThreadResult> results(static_cast<std::size_t>(options.threads));
    std::vector<std::thread> threads;
    for (std::size_t thread = 1; thread < results.size(); ++thread) {
        threads.emplace_back([&options, &results, thread] { results[thread] = RunThread(options); });
    }
    results[0] = RunThread(options);
    for (std::thread& thread : threads) thread.join();
    PrintReport(options, results);
    return 0;
}
