// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace hostrange {

struct AddressRange {
    std::uint64_t begin, end;
};

struct InlinedInstance {
    std::string symbol;
    std::string name;
    std::uint64_t container_address;
    std::vector<AddressRange> ranges;
    std::uint64_t entry;
    unsigned depth;
};

struct InlinedInstances {
    std::vector<InlinedInstance> instances;
    std::vector<std::string> without_code;
    bool has_debug_info = false;
    std::string problem;
};

InlinedInstances find_inlined_instances(
    const std::string& path,
    const std::function<bool(const std::string& symbol, const std::string& demangled)>& wanted);

}  // namespace hostrange
