// SPDX-License-Identifier: Apache-2.0
//
// C++ exceptions that cross probed frames. Also built as hard_case_exceptions_static, which has its own copy of
// libstdc++ and so its own __cxa_begin_catch.
//
//   mode             function           entered  returned  by exception
//   through_all      outer              n        even      odd           caught by a caller that is not probed
//                    middle             n        even      odd
//                    inner              n        even      odd
//   caught_in_outer  catching_outer     n        n
//                    middle             n        even      odd
//                    inner              n        even      odd
//   rethrow          catching_outer     n        n
//                    rethrowing_middle  n        even      odd           catches, calls leaf, throws again
//                    inner              n        even      odd
//                    leaf               odd      odd
//   retry            retrying_outer     n        n                       two calls that throw and one that does not
//                    inner              3n       n         2n            all from the same frame
//   deep_catch       catching_outer     n        n                       catches nothing
//                    enclosing_middle   n        n
//                    swallowing_inner   n        n                       catches, then calls leaf
//                    thrower            n        0         n
//                    leaf               n        n
//   nested           catching_outer     n        n                       catches nothing
//                    nesting_middle     n        n                       throws and catches again within its handler
//                    thrower            2n       0         2n
//                    leaf               n        n
//   cleanup          catching_outer     n        n
//                    guarded_middle     n        even      odd           has a destructor that calls cleanup
//                    inner              n        even      odd
//                    cleanup            n        n                       odd of them run while an exception unwinds, at
//                                                                        the stack pointer that inner's dead frame had
//                    thrower            n        0         n             called and caught by cleanup

#include <stdexcept>

#include "target.h"

using hard_cases::Arguments;
using hard_cases::is_odd;
using hard_cases::stir;

namespace target {

using Step = unsigned (*)(int);

PROBED unsigned leaf(int i) {
    return stir(i);
}

PROBED unsigned thrower(int i) {
    throw std::runtime_error("thrown by thrower " + std::to_string(i));
}

PROBED unsigned inner(int i) {
    if (is_odd(i)) throw std::runtime_error("thrown by inner");
    return stir(i);
}

PROBED unsigned middle(int i) {
    return stir(inner(i));
}

PROBED unsigned outer(int i) {
    return stir(middle(i));
}

PROBED unsigned catching_outer(int i, Step step) {
    try {
        return stir(step(i));
    } catch (const std::exception& error) {
        return stir(std::strlen(error.what()));
    }
}

PROBED unsigned rethrowing_middle(int i) {
    try {
        return stir(inner(i));
    } catch (...) {
        leaf(i);
        throw;
    }
}

PROBED unsigned retrying_outer(int i) {
    unsigned failures = 0;
    for (int attempt = 0;; attempt++) {
        try {
            return stir(inner(attempt < 2 ? 1 : 2 * i) + failures);
        } catch (const std::exception&) {
            failures++;
        }
    }
}

PROBED unsigned swallowing_inner(int i) {
    unsigned sum = 0;
    try {
        sum = thrower(i);
    } catch (const std::exception&) {
        sum = 1;
    }
    return stir(sum + leaf(i));
}

PROBED unsigned enclosing_middle(int i) {
    return stir(swallowing_inner(i));
}

PROBED unsigned nesting_middle(int i) {
    try {
        return thrower(i);
    } catch (const std::exception&) {
        unsigned sum = 0;
        try {
            sum = thrower(i);
        } catch (const std::exception&) {
            sum = 1;
        }
        return stir(sum + leaf(i));
    }
}

PROBED unsigned cleanup(int i) {
    try {
        return thrower(i);
    } catch (const std::exception&) {
        return stir(i);
    }
}

}  // namespace target

namespace {

struct Guard {
    int i;
    ~Guard() { target::cleanup(i); }
};

}  // namespace

namespace target {

PROBED unsigned guarded_middle(int i) {
    Guard guard{i};
    return stir(inner(i));
}

}  // namespace target

namespace {

void report(const Arguments& arguments, target::Step step) {
    unsigned sum = 0, caught = 0;
    for (int i = 0; i < arguments.repetitions; i++) {
        try {
            sum += step(i);
        } catch (const std::exception&) {
            caught++;
        }
    }
    hard_cases::print_done("checksum=%u caught_by_caller=%u", sum, caught);
}

template <target::Step step>
void run(const Arguments& arguments) {
    report(arguments, step);
}

template <target::Step step>
void run_in_catching_outer(const Arguments& arguments) {
    report(arguments, [](int i) { return target::catching_outer(i, step); });
}

constexpr hard_cases::Mode kModes[] = {
    {"through_all", run<target::outer>},
    {"caught_in_outer", run_in_catching_outer<target::middle>},
    {"rethrow", run_in_catching_outer<target::rethrowing_middle>},
    {"retry", run<target::retrying_outer>},
    {"deep_catch", run_in_catching_outer<target::enclosing_middle>},
    {"nested", run_in_catching_outer<target::nesting_middle>},
    {"cleanup", run_in_catching_outer<target::guarded_middle>},
};

}  // namespace

int main(int argc, char** argv) {
    return hard_cases::run_target(argc, argv, kModes);
}
