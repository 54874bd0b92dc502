// SPDX-License-Identifier: Apache-2.0
//
// Call trees with more scopes than a profiler may buffer: EXTRA = c scopes (default 1000) in one outermost scope.
//
//   mode        function        entered       returned  by exception
//   flat        outer           n             n
//               inner           n c           n c
//   two_levels  nesting_outer   n             n                       c scopes in all: a tenth (rounded up) of them
//               middle          n c/10 up     all                     middle, each of which calls
//               inner           9 n c/10 up   all                     inner nine times
//   thrown      throwing_outer  n             0         n             throws after the last inner; caught by a caller
//               inner           n c           n c                     that is not probed

#include <stdexcept>

#include "target.h"

using hard_cases::Arguments;
using hard_cases::stir;

namespace target {

PROBED unsigned inner(int i) {
    return stir(i);
}

PROBED unsigned middle(int i) {
    unsigned sum = 0;
    for (int call = 0; call < 9; call++) sum = stir(sum + inner(i + call));
    return sum;
}

PROBED unsigned outer(int calls) {
    unsigned sum = 0;
    for (int call = 0; call < calls; call++) sum = stir(sum + inner(call));
    return sum;
}

PROBED unsigned nesting_outer(int calls) {
    unsigned sum = 0;
    for (int call = 0; call < calls; call++) sum = stir(sum + middle(call));
    return sum;
}

PROBED unsigned throwing_outer(int calls) {
    unsigned sum = 0;
    for (int call = 0; call < calls; call++) sum = stir(sum + inner(call));
    throw std::runtime_error("thrown by throwing_outer after " + std::to_string(sum));
}

}  // namespace target

namespace {

void run_flat(const Arguments& arguments) {
    unsigned sum = 0;
    for (int i = 0; i < arguments.repetitions; i++) sum += target::outer(arguments.extra_number(1000));
    hard_cases::print_done("checksum=%u", sum);
}

void run_two_levels(const Arguments& arguments) {
    const int calls = (arguments.extra_number(1000) + 9) / 10;
    unsigned sum = 0;
    for (int i = 0; i < arguments.repetitions; i++) sum += target::nesting_outer(calls);
    hard_cases::print_done("checksum=%u", sum);
}

void run_thrown(const Arguments& arguments) {
    unsigned caught = 0;
    for (int i = 0; i < arguments.repetitions; i++) {
        try {
            target::throwing_outer(arguments.extra_number(1000));
        } catch (const std::exception&) {
            caught++;
        }
    }
    hard_cases::print_done("caught_by_caller=%u", caught);
}

constexpr hard_cases::Mode kModes[] = {{"flat", run_flat}, {"two_levels", run_two_levels}, {"thrown", run_thrown}};

}  // namespace

int main(int argc, char** argv) {
    return hard_cases::run_target(argc, argv, kModes);
}
