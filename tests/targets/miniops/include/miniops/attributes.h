// SPDX-License-Identifier: Apache-2.0
#pragma once

// A layer stays a function of its own (or never is one) whatever the optimiser thinks, as in the library mirrored here.
#define MINIOPS_OUT_OF_LINE __attribute__((noinline))
#define MINIOPS_ALWAYS_INLINE __attribute__((always_inline)) inline
