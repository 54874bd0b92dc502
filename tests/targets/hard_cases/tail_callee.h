// SPDX-License-Identifier: Apache-2.0
#pragma once

// libtail_callee.so: what hard_case_tail_calls jumps to through its procedure linkage table.

namespace target {

unsigned remote_back(int i);

}  // namespace target
