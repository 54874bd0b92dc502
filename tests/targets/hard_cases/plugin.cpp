// SPDX-License-Identifier: Apache-2.0
//
// Loads EXTRA = path of libplugin.so once it has been released, and calls it at once: who attaches only after a library
// has been seen misses its one call. All return.
//
//   mode    plugin_constructor  plugin_entry
//   once    1                   1             REPETITIONS is the argument of plugin_entry
//   repeat  n                   n             loads, calls and unloads n times

#include <dlfcn.h>

#include "target.h"

using hard_cases::Arguments;

namespace {

[[noreturn]] void fail() {
    std::fprintf(stderr, "%s\n", dlerror());
    std::exit(1);
}

void* load(const Arguments& arguments) {
    if (!arguments.extra) {
        std::fputs("the third argument must be the path of libplugin.so\n", stderr);
        std::exit(2);
    }
    void* plugin = dlopen(arguments.extra, RTLD_NOW | RTLD_LOCAL);
    if (!plugin) fail();
    return plugin;
}

template <typename Function>
Function* find(void* plugin, const char* symbol) {
    void* address = dlsym(plugin, symbol);
    if (!address) fail();
    return reinterpret_cast<Function*>(address);
}

unsigned call(void* plugin, int i) {
    const unsigned entry = find<unsigned(int)>(plugin, "_ZN6target12plugin_entryEi")(i);
    return entry + find<unsigned()>(plugin, "plugin_constructed")();
}

void run_once(const Arguments& arguments) {
    void* plugin = load(arguments);
    hard_cases::print_done("checksum=%u", call(plugin, arguments.repetitions));
}

void run_repeat(const Arguments& arguments) {
    unsigned sum = 0, unloaded = 0;
    for (int i = 0; i < arguments.repetitions; i++) {
        void* plugin = load(arguments);
        sum += call(plugin, i);
        dlclose(plugin);
        unloaded += dlopen(arguments.extra, RTLD_NOW | RTLD_NOLOAD) == nullptr;
    }
    hard_cases::print_done("checksum=%u unloaded=%u", sum, unloaded);
}

constexpr hard_cases::Mode kModes[] = {{"once", run_once}, {"repeat", run_repeat}};

}  // namespace

int main(int argc, char** argv) {
    return hard_cases::run_target(argc, argv, kModes);
}
