// SPDX-License-Identifier: Apache-2.0

#include "tail_callee.h"

#include "target.h"

namespace target {

PROBED unsigned remote_back(int i) {
    return hard_cases::stir(i);
}

}  // namespace target
