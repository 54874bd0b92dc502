// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace hostrange {

// A small process that outlives this one for a moment: if this one dies, whatever the reason, it sends SIGCONT to every
// process that was stopped for us. A target would otherwise stay stopped for ever.
class Guardian {
public:
    // `stopped` is shared memory: process ids, 0 in free places. Call it before any thread is started.
    Guardian(volatile std::uint64_t* stopped, std::size_t count);
    ~Guardian();  // ends it
    Guardian(const Guardian&) = delete;
    Guardian& operator=(const Guardian&) = delete;

private:
    pid_t process_ = -1;
};

}  // namespace hostrange
