// SPDX-License-Identifier: Apache-2.0
// Names of symbols. libiberty is not instrumented, so the fuzzer gets no guidance inside it: each input is tried with
// the two prefixes that lead there.
#include <string>

#include "loader/probes/elf_file.h"
#include "loader/probes/symbol_matching.h"
#include "tests/fuzz/fuzzer.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string text(reinterpret_cast<const char*>(data), size);
    for (const char* prefix : {"", "_Z", "_R"}) {
        const std::string symbol = prefix + text;
        const std::string name = hostrange::demangle(symbol);
        require(name == symbol || name.size() <= hostrange::kMaxDemangledBytes, "a name has a largest size");
        const hostrange::CloneSuffix suffix = hostrange::clone_suffix(symbol);
        require(symbol.starts_with(suffix.root) && symbol.starts_with(suffix.base), "suffixes stand at the end");
    }
    return 0;
}
