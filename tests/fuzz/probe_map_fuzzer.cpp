// SPDX-License-Identifier: Apache-2.0
// Probe maps: a wrong one is refused with a message, a right one is used on some names.
#include <string>

#include "loader/failure.h"
#include "loader/probes/probe_map.h"
#include "loader/probes/symbol_matching.h"
#include "tests/fuzz/fuzzer.h"

namespace {

const std::string kNames[][2] = {
    {"_ZN7miniops6detail29TensorFromPybind11HandleImplEN8pybind116handleE",
     "miniops::detail::TensorFromPybind11HandleImpl(pybind11::handle)"},
    {"f.constprop.0.cold", "f [clone .constprop.0] [clone .cold]"},
    {std::string(200, 'a'), std::string(2000, 'a')},
};

void use(const hostrange::ProbeMap& map) {
    for (const std::string& base_name : {std::string("libminiops.so"), std::string(255, 'a')}) {
        const hostrange::SymbolMatcher matcher(map, base_name);
        for (const auto& [symbol, demangled] : kNames)
            for (const hostrange::SymbolMatch& match : matcher.match(symbol, demangled))
                require(match.range < map.ranges.size(), "a match is of a range of the map");
    }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    try {
        use(hostrange::parse_probe_map({reinterpret_cast<const char*>(data), size}, "map.toml"));
    } catch (const hostrange::Failure& failure) {
        require(failure.code() == hostrange::ExitCode::kProbeMap, "a wrong map has its own exit code");
        require(std::string(failure.what()).starts_with("map.toml:"), "a message names the file");
        require(!failure.hint().empty(), "a message says what to do");
    }
    return 0;
}
