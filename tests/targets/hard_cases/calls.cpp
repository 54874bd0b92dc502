// SPDX-License-Identifier: Apache-2.0
//
// Plain nested calls: outer calls middle twice, middle calls inner three times. All return.
//
//   mode               outer      middle     inner
//   single             n          2n         6n
//   threads THREADS    n THREADS  2n THREADS 6n THREADS   each thread does what `single` does; default 4
//   spin               n b        2n b       6n b         b batches until standard input ends, at least one
//
// `spin` is the bystander: it prints "per_call_ns X" before "done", the median over batches of a call of outer.

#include <algorithm>
#include <chrono>
#include <thread>

#include "target.h"

using hard_cases::Arguments;
using hard_cases::stir;

namespace target {

PROBED unsigned inner(int i) {
    return stir(i);
}

PROBED unsigned middle(int i) {
    unsigned sum = 0;
    for (int call = 0; call < 3; call++) sum = stir(sum + inner(i + call));
    return sum;
}

PROBED unsigned outer(int i) {
    unsigned sum = 0;
    for (int call = 0; call < 2; call++) sum = stir(sum + middle(i + call));
    return sum;
}

}  // namespace target

namespace {

unsigned call_outer(int repetitions) {
    unsigned sum = 0;
    for (int i = 0; i < repetitions; i++) sum += target::outer(i);
    return sum;
}

void run_single(const Arguments& arguments) {
    hard_cases::print_done("checksum=%u", call_outer(arguments.repetitions));
}

void run_threads(const Arguments& arguments) {
    std::vector<unsigned> sums(arguments.extra_number(4));
    std::vector<std::thread> threads;
    for (unsigned& sum : sums) threads.emplace_back([&] { sum = call_outer(arguments.repetitions); });
    unsigned total = 0;
    for (std::size_t i = 0; i < threads.size(); i++) {
        threads[i].join();
        total += sums[i];
    }
    hard_cases::print_done("checksum=%u", total);
}

void run_spin(const Arguments& arguments) {
    constexpr std::size_t kKeptBatches = 65536;
    std::vector<double> per_call_ns;
    std::size_t batches = 0, different = 0;
    unsigned first_sum = 0;
    do {
        const auto start = std::chrono::steady_clock::now();
        const unsigned sum = call_outer(arguments.repetitions);
        const std::chrono::duration<double, std::nano> elapsed = std::chrono::steady_clock::now() - start;
        if (batches == 0) first_sum = sum;
        different += sum != first_sum;
        const double batch_ns = elapsed.count() / std::max(arguments.repetitions, 1);
        if (per_call_ns.size() < kKeptBatches) {
            per_call_ns.push_back(batch_ns);
        } else {
            per_call_ns[batches % kKeptBatches] = batch_ns;
        }
        batches++;
    } while (!hard_cases::input_ended());
    const auto median = per_call_ns.begin() + per_call_ns.size() / 2;
    std::nth_element(per_call_ns.begin(), median, per_call_ns.end());
    std::printf("per_call_ns %.1f\n", *median);
    hard_cases::print_done("checksum=%u different=%zu", first_sum, different);
}

constexpr hard_cases::Mode kModes[] = {{"single", run_single}, {"threads", run_threads}, {"spin", run_spin}};

}  // namespace

int main(int argc, char** argv) {
    return hard_cases::run_target(argc, argv, kModes);
}
