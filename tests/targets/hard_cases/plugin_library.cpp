// SPDX-License-Identifier: Apache-2.0
//
// libplugin.so, which hard_case_plugin loads. Counts: see plugin.cpp.

#include "target.h"

namespace target {

PROBED unsigned plugin_constructor(int i) {
    return hard_cases::stir(i);
}

PROBED unsigned plugin_entry(int i) {
    return hard_cases::stir(i);
}

}  // namespace target

namespace {

unsigned constructed = 0;

// Runs before dlopen() returns.
[[gnu::constructor]] void construct() {
    constructed = target::plugin_constructor(1);
}

}  // namespace

extern "C" unsigned plugin_constructed() {
    return constructed;
}
