// SPDX-License-Identifier: Apache-2.0
#include <libiberty/demangle.h>

#include <algorithm>
#include <csetjmp>
#include <string_view>

#include "loader/probes/elf_file.h"

namespace hostrange {

namespace {

// Without libiberty's own limit its demangler takes 64 bytes of stack for each byte of the name; with it, names of more
// than 1,024 bytes stay mangled, and template-heavy code has those.
constexpr std::size_t kMaxMangledBytes = 16 << 10;

// A name of a few bytes that is made to be long takes milliseconds, and a file can have very many.
constexpr std::size_t kMostBytesPerMangledByte = 128;

struct Output {
    std::string text;
    std::size_t limit_bytes = 0;
    std::jmp_buf too_long;
};

// A chain of substitutions doubles the name at each link, so it has to be stopped on the way. The callback interface of
// libiberty allocates nothing but stack, so jumping out of it leaks nothing; an exception may not cross C code.
void append(const char* text, std::size_t size, void* opaque) {
    auto& output = *static_cast<Output*>(opaque);
    if (output.text.size() + size > output.limit_bytes) std::longjmp(output.too_long, 1);
    output.text.append(text, size);  // never allocates: reserved
}

// Kept apart so that no object with a destructor lives in the frame that is jumped back to.
bool demangle_into(const char* symbol, bool rust, Output& output) {
    if (setjmp(output.too_long) != 0) return false;
    if (rust) return rust_demangle_callback(symbol, DMGL_NO_OPTS, append, &output) != 0;
    return cplus_demangle_v3_callback(symbol, DMGL_PARAMS | DMGL_ANSI | DMGL_NO_RECURSE_LIMIT, append, &output) != 0;
}

}  // namespace

std::string demangle(const std::string& symbol) {
    const bool rust = symbol.starts_with("_R");
    if (!rust && !symbol.starts_with("_Z")) return symbol;
    if (symbol.size() > kMaxMangledBytes) return symbol;
    thread_local Output output;
    output.text.reserve(kMaxDemangledBytes);
    output.limit_bytes = std::min(kMaxDemangledBytes, kMostBytesPerMangledByte * symbol.size());
    // Rust's older scheme is C++'s with a hash of this form at the end of the name.
    for (const bool as_rust : {true, false}) {
        if (as_rust ? !rust && symbol.find("17h") == std::string::npos : rust) continue;
        output.text.clear();
        if (demangle_into(symbol.c_str(), as_rust, output)) return output.text;
    }
    return symbol;
}

}  // namespace hostrange
